import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, by the names they were given. */
final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration CLOSE = Duration.ofSeconds(5);

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> writers = new HashMap<>();

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void close() {
        writers.values().forEach(writer -> writer.close(CLOSE));
    }

    JsonNode open(JsonNode command) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", command.get("transactional_id").asText());
        settings.put("max.block.ms", 30_000);
        KafkaProducer<byte[], byte[]> writer =
            new KafkaProducer<>(Security.secured(settings), new ByteArraySerializer(), new ByteArraySerializer());
        writers.put(command.get("writer").asText(), writer);
        writer.initTransactions();
        return JSON.nullNode();
    }

    JsonNode begin(JsonNode command) {
        writer(command).beginTransaction();
        return JSON.nullNode();
    }

    JsonNode send(JsonNode command, TopicPartition partition) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            sent.add(writer(command).send(Driver.toRecord(record, partition)));
        }
        writer(command).flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
        return JSON.nullNode();
    }

    JsonNode sendOffset(JsonNode command, TopicPartition partition) {
        Map<TopicPartition, OffsetAndMetadata> offsets =
            Map.of(partition, new OffsetAndMetadata(command.get("offset").asLong()));
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(command.get("group").asText());
        writer(command).sendOffsetsToTransaction(offsets, group);
        return JSON.nullNode();
    }

    JsonNode commit(JsonNode command) {
        writer(command).commitTransaction();
        return JSON.nullNode();
    }

    JsonNode abort(JsonNode command) {
        writer(command).abortTransaction();
        return JSON.nullNode();
    }

    JsonNode end(JsonNode command) {
        writers.remove(command.get("writer").asText()).close(CLOSE);
        return JSON.nullNode();
    }

    private KafkaProducer<byte[], byte[]> writer(JsonNode command) {
        return writers.get(command.get("writer").asText());
    }
}
