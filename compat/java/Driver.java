import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Driver of the Java client: one JSON command per line in, one JSON answer per line out. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TIMEOUT_MS = 30_000;

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Admin admin;
    private final Members members;
    private final Transactions transactions;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.members = new Members(bootstrap);
        this.transactions = new Transactions(bootstrap);
        this.admin = Admin.create(Security.secured(Map.of("bootstrap.servers", bootstrap)));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = new Driver(arguments[0]);
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
        }
        driver.close();
    }

    private void close() {
        members.close();
        transactions.close();
        producers.values().forEach(producer -> producer.close(Duration.ofSeconds(5)));
        admin.close(Duration.ofSeconds(5));
    }

    private ObjectNode answer(JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("result", perform(command));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            Errors known = Errors.forException(cause);
            if (known == Errors.UNKNOWN_SERVER_ERROR) {
                answer.put("fault", cause.toString());
            } else {
                answer.put("code", known.code());
                answer.put("message", cause.toString());
            }
        }
        return answer;
    }

    private JsonNode perform(JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        TopicPartition partition = new TopicPartition(topic, command.path("partition").asInt());
        switch (command.get("do").asText()) {
            case "produce":
                return produce(command, partition);
            case "consume":
                return consume(command, partition);
            case "list_offset":
                return listOffset(command.get("at"), partition);
            case "list_topics":
                return JSON.valueToTree(admin.listTopics().names().get());
            case "describe_topic":
                return describeTopic(topic);
            case "create_topic":
                return createTopic(command, topic);
            case "delete_topic":
                return done(admin.deleteTopics(List.of(topic)).all());
            case "create_partitions":
                NewPartitions total = NewPartitions.increaseTo(command.get("total").asInt());
                return done(admin.createPartitions(Map.of(topic, total)).all());
            case "describe_configs":
                return describeConfigs(command);
            case "alter_configs":
                return alterConfigs(command.get("changes"), topic);
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before_offset").asLong());
                Map<TopicPartition, RecordsToDelete> deletions = Map.of(partition, before);
                long lowWatermark = admin.deleteRecords(deletions).lowWatermarks().get(partition).get().lowWatermark();
                return JSON.valueToTree(lowWatermark);
            case "describe_cluster":
                return describeCluster();
            case "log_dir_sizes":
                return logDirSizes();
            case "producer_ids":
                return producerIds(partition);
            case "join_group":
                return members.join(command);
            case "member_poll":
                return members.poll(command);
            case "member_assignment":
                return members.assignment(command);
            case "member_commit":
                return members.commit(command);
            case "member_close":
                return members.leave(command);
            case "committed_offset":
                return members.committedOffset(command, partition);
            case "commit_offset":
                return members.commitOffset(command, partition);
            case "open_transactions":
                return transactions.open(command);
            case "transaction_begin":
                return transactions.begin(command);
            case "transaction_send":
                return transactions.send(command, partition);
            case "transaction_send_offset":
                return transactions.sendOffset(command, partition);
            case "transaction_commit":
                return transactions.commit(command);
            case "transaction_abort":
                return transactions.abort(command);
            case "transaction_close":
                return transactions.end(command);
            case "list_groups":
                return listGroups();
            case "describe_group":
                return describeGroup(command.get("group").asText());
            case "delete_group":
                return done(admin.deleteConsumerGroups(List.of(command.get("group").asText())).all());
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private static JsonNode done(KafkaFuture<Void> future) throws Exception {
        future.get();
        return JSON.nullNode();
    }

    private KafkaProducer<byte[], byte[]> producer(String compression, String acks, boolean idempotent) {
        return producers.computeIfAbsent(compression + acks + idempotent, unused -> {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("compression.type", compression);
            settings.put("acks", acks);
            settings.put("enable.idempotence", idempotent);
            settings.put("max.request.size", 10_000_000);
            settings.put("linger.ms", 5);
            return new KafkaProducer<>(Security.secured(settings), new ByteArraySerializer(), new ByteArraySerializer());
        });
    }

    private JsonNode produce(JsonNode command, TopicPartition partition) throws Exception {
        boolean idempotent = command.get("idempotent").asBoolean();
        KafkaProducer<byte[], byte[]> producer =
            producer(command.get("compression").asText(), command.get("acks").asText(), idempotent);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            sent.add(producer.send(toRecord(record, partition)));
        }
        producer.flush();
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata metadata = one.get();
            offsets.add(metadata.hasOffset() ? JSON.valueToTree(metadata.offset()) : JSON.nullNode());
        }
        return offsets;
    }

    static ProducerRecord<byte[], byte[]> toRecord(JsonNode record, TopicPartition partition) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        JsonNode timestamp = record.get("timestamp_ms");
        Long timestampMs = timestamp.isNull() ? null : timestamp.asLong();
        byte[] key = bytes(record.get("key"));
        byte[] value = bytes(record.get("value"));
        return new ProducerRecord<>(partition.topic(), partition.partition(), timestampMs, key, value, headers);
    }

    private static byte[] bytes(JsonNode encoded) {
        return encoded.isNull() ? null : Base64.getDecoder().decode(encoded.asText());
    }

    private static JsonNode text(byte[] plain) {
        return plain == null ? JSON.nullNode() : JSON.valueToTree(Base64.getEncoder().encodeToString(plain));
    }

    private JsonNode consume(JsonNode command, TopicPartition partition) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "isolation.level", command.get("isolation").asText(),
            "client.rack", command.path("rack").asText(""),
            "auto.offset.reset", "earliest");
        ArrayNode taken = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(Security.secured(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, command.get("offset").asLong());
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            int count = command.get("count").asInt();
            while (taken.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    taken.add(fromRecord(record));
                }
            }
        }
        return taken;
    }

    private JsonNode listGroups() throws Exception {
        ArrayNode groups = JSON.createArrayNode();
        admin.listConsumerGroups().all().get().forEach(listing -> groups.add(listing.groupId()));
        return groups;
    }

    private JsonNode describeGroup(String group) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        ObjectNode described = JSON.createObjectNode();
        described.put("state", found.state().toString());
        return described.put("member_count", found.members().size());
    }

    static JsonNode fromRecord(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode found = JSON.createObjectNode();
        found.put("offset", record.offset());
        found.put("timestamp_ms", record.timestamp());
        found.set("key", text(record.key()));
        found.set("value", text(record.value()));
        ArrayNode headers = found.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return found;
    }

    private JsonNode listOffset(JsonNode at, TopicPartition partition) throws Exception {
        OffsetSpec spec;
        switch (at.asText()) {
            case "earliest":
                spec = OffsetSpec.earliest();
                break;
            case "latest":
                spec = OffsetSpec.latest();
                break;
            case "max-timestamp":
                spec = OffsetSpec.maxTimestamp();
                break;
            default:
                spec = OffsetSpec.forTimestamp(at.asLong());
        }
        long offset = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
        return offset < 0 ? JSON.nullNode() : JSON.valueToTree(offset);
    }

    private JsonNode describeTopic(String topic) throws Exception {
        TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        ArrayNode partitions = JSON.createArrayNode();
        for (TopicPartitionInfo info : description.partitions()) {
            ObjectNode found = partitions.addObject();
            found.put("partition", info.partition());
            found.put("leader", info.leader() == null ? -1 : info.leader().id());
            found.set("replicas", identities(info.replicas()));
            found.set("in_sync_replicas", identities(info.isr()));
        }
        return partitions;
    }

    private static JsonNode identities(Collection<Node> nodes) {
        ArrayNode found = JSON.createArrayNode();
        nodes.forEach(node -> found.add(node.id()));
        return found;
    }

    private JsonNode createTopic(JsonNode command, String topic) throws Exception {
        Map<String, String> configs = new HashMap<>();
        command.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        int partitions = command.get("partitions").asInt();
        NewTopic wanted = new NewTopic(topic, Optional.of(partitions), Optional.empty()).configs(configs);
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(command.get("validate_only").asBoolean());
        return done(admin.createTopics(List.of(wanted), options).all());
    }

    private static ConfigResource resource(String kind, String name) {
        return new ConfigResource(kind.equals("broker") ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC, name);
    }

    private JsonNode describeConfigs(JsonNode command) throws Exception {
        ConfigResource wanted = resource(command.get("kind").asText(), command.get("name").asText());
        ObjectNode found = JSON.createObjectNode();
        for (ConfigEntry entry : admin.describeConfigs(List.of(wanted)).all().get().get(wanted).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    private JsonNode alterConfigs(JsonNode changes, String topic) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (Map.Entry<String, JsonNode> change : changes.properties()) {
            boolean isDeletion = change.getValue().isNull();
            ConfigEntry entry = new ConfigEntry(change.getKey(), isDeletion ? "" : change.getValue().asText());
            operations.add(new AlterConfigOp(entry, isDeletion ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        }
        return done(admin.incrementalAlterConfigs(Map.of(resource("topic", topic), operations)).all());
    }

    private JsonNode describeCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        ObjectNode found = JSON.createObjectNode();
        found.put("cluster_id", cluster.clusterId().get());
        found.put("controller", cluster.controller().get().id());
        ObjectNode brokers = found.putObject("brokers");
        for (Node node : cluster.nodes().get()) {
            brokers.put(node.idString(), node.host() + ":" + node.port());
        }
        return found;
    }

    private JsonNode logDirSizes() throws Exception {
        List<Integer> brokers = new ArrayList<>();
        admin.describeCluster().nodes().get().forEach(node -> brokers.add(node.id()));
        ArrayNode sizes = JSON.createArrayNode();
        for (Map<String, LogDirDescription> ofBroker : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription directory : ofBroker.values()) {
                directory.replicaInfos().forEach((partition, replica) ->
                    sizes.addArray().add(partition.topic()).add(partition.partition()).add(replica.size()));
            }
        }
        return sizes;
    }

    private JsonNode producerIds(TopicPartition partition) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        for (ProducerState state :
            admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            found.put(Long.toString(state.producerId()), state.lastSequence());
        }
        return found;
    }
}
