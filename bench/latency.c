/*
 * Open-loop latency: records are sent by the clock, whether or not earlier ones were answered, and a
 * record's latency counts from the moment it was due. So a broker that stalls pays for every record that
 * waited, not only for the one that was under way.
 *
 * latency BOOTSTRAP TOPIC ack|end RATE_PER_SECOND SECONDS WARM_SECONDS VALUE_BYTES LINGER_MS PARTITIONS ACKS
 * > nanoseconds
 *
 * `ack`: from due to the delivery report. `end`: from due to the consumer's hands.
 * Writes one signed 64-bit integer (nanoseconds, machine order) per record to standard output.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "rdkafka.h"

#define NANOSECONDS 1000000000LL
#define SHORTEST_SLEEP_NS 100000LL
#define DRAIN_NS (20 * NANOSECONDS)

static int64_t *latencies;
static int64_t expected_count;
static int64_t warm_count;
static volatile int64_t seen_count;
static volatile int64_t failed_count;
static volatile int finished;

static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * NANOSECONDS + now.tv_nsec;
}

static void sleep_until(int64_t due_ns) {
        struct timespec due = {due_ns / NANOSECONDS, due_ns % NANOSECONDS};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static void die(const char *what, const char *why) {
        fprintf(stderr, "latency: %s: %s\n", what, why);
        exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
        char reason[512];
        if (rd_kafka_conf_set(conf, key, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
                die(key, reason);
}

/* Called by one thread only: the poller of the delivery reports, or the consumer. */
static void note(int64_t due_ns) {
        if (seen_count < expected_count)
                latencies[seen_count] = now_ns() - due_ns;
        seen_count++;
}

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *wants_acks) {
        (void)client;
        int64_t due_ns;
        if (message->err) {
                failed_count++;
                return;
        }
        memcpy(&due_ns, message->payload, sizeof(due_ns));
        if (wants_acks)
                note(due_ns);
}

static void *poll_deliveries(void *producer) {
        while (!finished)
                rd_kafka_poll(producer, 50);
        return NULL;
}

static void consume_one(rd_kafka_message_t *message, void *unused) {
        (void)unused;
        int64_t due_ns;
        if (message->err || message->len < sizeof(due_ns))
                return;
        memcpy(&due_ns, message->payload, sizeof(due_ns));
        note(due_ns);
}

static void *poll_records(void *queue) {
        while (!finished)
                rd_kafka_consume_callback_queue(queue, 50, consume_one, NULL);
        return NULL;
}

static rd_kafka_t *make_client(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *bootstrap) {
        char reason[512];
        set(conf, "bootstrap.servers", bootstrap);
        set(conf, "socket.nagle.disable", "true");
        rd_kafka_t *client = rd_kafka_new(type, conf, reason, sizeof(reason));
        if (!client)
                die("client", reason);
        return client;
}

static rd_kafka_t *make_producer(const char *bootstrap, const char *linger_ms, const char *acks, int wants_acks) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "linger.ms", linger_ms);
        set(conf, "acks", acks);
        set(conf, "queue.buffering.max.messages", "5000000");
        set(conf, "queue.buffering.max.kbytes", "4000000");
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
        rd_kafka_conf_set_opaque(conf, wants_acks ? (void *)1 : NULL);
        return make_client(RD_KAFKA_PRODUCER, conf, bootstrap);
}

static rd_kafka_queue_t *start_consumer(const char *bootstrap, const char *topic_name, int partitions) {
        rd_kafka_t *consumer = make_client(RD_KAFKA_CONSUMER, rd_kafka_conf_new(), bootstrap);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(consumer, topic_name, NULL);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
        for (int partition = 0; partition < partitions; partition++)
                if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue))
                        die("consumer", rd_kafka_err2str(rd_kafka_last_error()));
        return queue;
}

static void send_by_the_clock(rd_kafka_topic_t *topic, int64_t rate, char *value, size_t value_bytes, int partitions) {
        int64_t start_ns = now_ns() + SHORTEST_SLEEP_NS;
        for (int64_t sent = 0; sent < expected_count; sent++) {
                int64_t due_ns = start_ns + sent * NANOSECONDS / rate;
                if (due_ns > now_ns())
                        sleep_until(NANOSECONDS / rate < SHORTEST_SLEEP_NS ? due_ns + SHORTEST_SLEEP_NS : due_ns);
                memcpy(value, &due_ns, sizeof(due_ns));
                if (rd_kafka_produce(topic, (int32_t)(sent % partitions), RD_KAFKA_MSG_F_COPY, value, value_bytes, NULL, 0, NULL))
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        }
}

static void wait_for_the_last(void) {
        int64_t deadline_ns = now_ns() + DRAIN_NS;
        while (seen_count < expected_count && now_ns() < deadline_ns)
                sleep_until(now_ns() + 1000000);
        if (seen_count != expected_count || failed_count)
                fprintf(stderr, "latency: expected %lld records, saw %lld, %lld failed\n", (long long)expected_count,
                        (long long)seen_count, (long long)failed_count);
}

int main(int argc, char **argv) {
        if (argc != 11)
                die("usage", "BOOTSTRAP TOPIC ack|end RATE SECONDS WARM_SECONDS VALUE_BYTES LINGER_MS PARTITIONS ACKS");
        int wants_acks = !strcmp(argv[3], "ack");
        int64_t rate = atoll(argv[4]);
        size_t value_bytes = (size_t)atoll(argv[7]);
        int partitions = atoi(argv[9]);
        pthread_t poller, reader;
        warm_count = rate * atoll(argv[6]);
        expected_count = warm_count + rate * atoll(argv[5]);
        if (rate < 1 || partitions < 1 || value_bytes < sizeof(int64_t))
                die("usage", "rate and partitions from 1, value from 8 bytes");
        latencies = calloc((size_t)expected_count, sizeof(*latencies));
        char *value = calloc(1, value_bytes);
        /* The kernel may round a sleep up by 50 microseconds unless told not to. */
        prctl(PR_SET_TIMERSLACK, 1);

        rd_kafka_t *producer = make_producer(argv[1], argv[8], argv[10], wants_acks);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[2], NULL);
        const struct rd_kafka_metadata *metadata;
        if (rd_kafka_metadata(producer, 0, topic, &metadata, 10000))
                die("metadata", "no answer");
        pthread_create(&poller, NULL, poll_deliveries, producer);
        if (!wants_acks)
                pthread_create(&reader, NULL, poll_records, start_consumer(argv[1], argv[2], partitions));
        send_by_the_clock(topic, rate, value, value_bytes, partitions);
        wait_for_the_last();
        if (seen_count != expected_count || failed_count)
                return 1;
        fwrite(latencies + warm_count, sizeof(*latencies), (size_t)(expected_count - warm_count), stdout);
        fflush(stdout);
        /* Leaving without closing the clients: nothing is owed to them, and closing costs seconds. */
        _Exit(0);
}
