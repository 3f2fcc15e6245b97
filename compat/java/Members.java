import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers in groups, by the names they were given. Each has to be polled to do its part in its group. */
final class Members {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(50);

    private final String bootstrap;
    private final Map<String, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();

    Members(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void close() {
        members.values().forEach(KafkaConsumer::close);
    }

    JsonNode join(JsonNode command) {
        Map<String, Object> settings = settings(command.get("group").asText());
        if (command.get("is_assigned_by_broker").asBoolean()) {
            settings.put("group.protocol", "consumer");
        } else {
            String kind = command.get("cooperative").asBoolean() ? "CooperativeStickyAssignor" : "RangeAssignor";
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + kind);
            settings.put("heartbeat.interval.ms", 300);
        }
        if (!command.get("instance_id").isNull()) {
            settings.put("group.instance.id", command.get("instance_id").asText());
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        consumer.subscribe(List.of(command.get("topic").asText()));
        members.put(command.get("member").asText(), consumer);
        return JSON.nullNode();
    }

    JsonNode poll(JsonNode command) {
        ArrayNode taken = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : member(command).poll(POLL)) {
            taken.addArray().add(record.partition()).add(Driver.fromRecord(record));
        }
        return taken;
    }

    JsonNode assignment(JsonNode command) {
        ArrayNode partitions = JSON.createArrayNode();
        member(command).assignment().forEach(place -> partitions.add(place.partition()));
        return partitions;
    }

    JsonNode commit(JsonNode command) {
        member(command).commitSync();
        return JSON.nullNode();
    }

    JsonNode leave(JsonNode command) {
        members.remove(command.get("member").asText()).close();
        return JSON.nullNode();
    }

    JsonNode committedOffset(JsonNode command, TopicPartition partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings(command.get("group").asText()))) {
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            return found == null ? JSON.nullNode() : JSON.valueToTree(found.offset());
        }
    }

    JsonNode commitOffset(JsonNode command, TopicPartition partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings(command.get("group").asText()))) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(command.get("offset").asLong())));
            return JSON.nullNode();
        }
    }

    private KafkaConsumer<byte[], byte[]> member(JsonNode command) {
        return members.get(command.get("member").asText());
    }

    private Map<String, Object> settings(String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        return settings;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(Security.secured(settings), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
