import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.PartitionReassignment;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The calls that Cruise Control's executor, monitor and metrics reporter make, with a throttled move under way. Not
 * Cruise Control itself: its ReplicationThrottleHelper, ExecutionUtils, ExecutorAdminUtils, KafkaCruiseControlUtils and
 * MonitorUtils were read for this, and nothing of them is here.
 *
 * <p>Three brokers, 1 to 3, with two log directories each. Ends with 0 where every result is what it must be.
 */
public final class CruiseControlCalls {
    private static final String METRICS = "__CruiseControlMetrics";
    private static final String TOPIC = "balanced";
    private static final TopicPartition DELETED = new TopicPartition("deleted", 0);
    private static final List<Integer> BROKERS = List.of(1, 2, 3);
    private static final List<String> RATES =
        List.of("leader.replication.throttled.rate", "follower.replication.throttled.rate");
    private static final List<String> LISTS =
        List.of("leader.replication.throttled.replicas", "follower.replication.throttled.replicas");
    private static final String HARDLY_ANY_RATE = "1000";
    private static final String GREAT_RATE = "100000000";
    private static final int RECORDS = 1000;
    private static final int RECORD_BYTES = 10_000;
    private static final long TIMEOUT_MS = 120_000;

    private final Admin admin;
    private final Properties settings;

    private CruiseControlCalls(Properties settings) {
        this.settings = settings;
        this.admin = Admin.create(settings);
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        CruiseControlCalls calls = new CruiseControlCalls(settings);
        try {
            calls.reportAndSampleMetrics();
            calls.monitor();
            calls.moveReplicas();
            calls.moveLeaders();
            calls.moveBetweenDisks();
        } finally {
            calls.admin.close(Duration.ofSeconds(5));
        }
        System.out.println("every result is what it must be");
    }

    // The metrics reporter makes its topic, or mends it where it is there already; the sampler reads from a time on.
    private void reportAndSampleMetrics() throws Exception {
        expect(createMetricsTopic(1, "18000000"), null, "creation of " + METRICS);
        expect(createMetricsTopic(3, "3600000"), "TopicExistsException", "second creation of " + METRICS);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, METRICS);
        expectSoon(() -> describe(topic).get("retention.ms").value(), "18000000", "retention.ms");
        alterAndWait(topic, List.of(set("retention.ms", "3600000"), set("cleanup.policy", "delete")));
        expectSoon(() -> partitionsOf(METRICS).size(), 1, "partitions of " + METRICS);
        get(admin.createPartitions(Map.of(METRICS, NewPartitions.increaseTo(3))).values().get(METRICS));
        expectSoon(() -> partitionsOf(METRICS).size(), 3, "partitions of " + METRICS);
        expect(write(METRICS, 3, 30, 1_000), 30, "acknowledged metrics");
        expect(sample(System.currentTimeMillis() - TIMEOUT_MS), 30, "sampled metrics");
        expect(sample(System.currentTimeMillis() + TIMEOUT_MS), 0, "metrics of the future");
    }

    private String createMetricsTopic(int partitions, String retentionMs) throws Exception {
        NewTopic topic = new NewTopic(METRICS, partitions, (short) 2);
        topic.configs(Map.of("retention.ms", retentionMs, "cleanup.policy", "delete"));
        return failureOf(admin.createTopics(List.of(topic)).values().get(METRICS));
    }

    private int write(String topic, int partitions, int count, int size) throws Exception {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.putAll(Map.of("acks", "all", "linger.ms", "20", "batch.size", "60000"));
        int acknowledged = 0;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, number % partitions, null, new byte[size])));
            }
            for (java.util.concurrent.Future<?> each : sent) {
                each.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
                acknowledged++;
            }
        }
        return acknowledged;
    }

    private int sample(long startMs) {
        Properties properties = new Properties();
        properties.putAll(settings);
        properties.putAll(Map.of("enable.auto.commit", "false", "auto.offset.reset", "latest"));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Set<TopicPartition> assignment = consumer.partitionsFor(METRICS).stream()
                .map(each -> new TopicPartition(each.topic(), each.partition())).collect(Collectors.toSet());
            consumer.assign(assignment);
            Map<TopicPartition, Long> ends = consumer.endOffsets(assignment);
            Map<TopicPartition, Long> times =
                assignment.stream().collect(Collectors.toMap(each -> each, each -> startMs));
            Map<TopicPartition, OffsetAndTimestamp> starts = consumer.offsetsForTimes(times);
            for (TopicPartition each : assignment) {
                OffsetAndTimestamp start = starts.get(each);
                consumer.seek(each, start == null ? ends.get(each) : start.offset());
            }
            consumer.resume(consumer.paused());
            int found = 0;
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            while (assignment.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                found += consumer.poll(Duration.ofMillis(500)).count();
                check(System.currentTimeMillis() < deadline, "the sampler stays behind");
            }
            return found;
        }
    }

    // What the monitor asks again and again: brokers, topics, their settings, and where each replica lies.
    private void monitor() throws Exception {
        Map<Integer, List<Integer>> assignment = Map.of(0, List.of(1, 2), 1, List.of(2, 1), 2, List.of(1, 2));
        get(admin.createTopics(List.of(new NewTopic(TOPIC, assignment))).all());
        expect(write(TOPIC, 2, RECORDS, RECORD_BYTES), RECORDS, "acknowledged records");
        Collection<Node> nodes = get(admin.describeCluster().nodes());
        expect(nodes.stream().map(Node::id).collect(Collectors.toSet()), Set.copyOf(BROKERS), "nodes");
        check(nodes.stream().noneMatch(each -> each.rack() == null), "a broker has no rack");
        ConfigResource everywhere = new ConfigResource(ConfigResource.Type.BROKER, "");
        check(describe(everywhere) != null, "no settings of all brokers");
        Set<String> own = Set.of(METRICS, TOPIC);
        expectSoon(() -> get(admin.listTopics().names()).containsAll(own), true, "whether all topics are listed");
        List<ConfigResource> resources =
            own.stream().map(each -> new ConfigResource(ConfigResource.Type.TOPIC, each)).collect(Collectors.toList());
        for (Map.Entry<ConfigResource, Config> each : get(admin.describeConfigs(resources).all()).entrySet()) {
            String minimum = each.getValue().get("min.insync.replicas").value();
            check(Integer.parseInt(minimum) > 0, each.getKey() + ": min.insync.replicas is " + minimum);
        }
        Map<TopicPartition, Map<Integer, String>> placement = replicaPlacement();
        expect(placement.get(partition(0)).keySet(), Set.of(1, 2), "brokers that hold partition 0");
        Map<TopicPartitionReplica, String> reported = logDirs(0, 1, 2, 3);
        for (int broker : List.of(1, 2)) {
            expect(reported.get(replica(0, broker)), placement.get(partition(0)).get(broker), "log directory at " + broker);
        }
        expect(reported.get(replica(0, 3)), null, "log directory of a replica that is not there");
    }

    private Map<TopicPartition, Map<Integer, String>> replicaPlacement() throws Exception {
        Map<TopicPartition, Map<Integer, String>> placement = new HashMap<>();
        for (Map.Entry<Integer, KafkaFuture<Map<String, LogDirDescription>>> broker
                : admin.describeLogDirs(BROKERS).descriptions().entrySet()) {
            Map<String, LogDirDescription> described = get(broker.getValue());
            expect(described.size(), 2, "log directories of broker " + broker.getKey());
            described.forEach((directory, description) -> {
                check(description.error() == null, directory + ": " + description.error());
                description.replicaInfos().forEach((place, replica) -> {
                    if (!replica.isFuture()) {
                        placement.computeIfAbsent(place, unused -> new HashMap<>()).put(broker.getKey(), directory);
                    }
                });
            });
        }
        return placement;
    }

    private Map<TopicPartitionReplica, String> logDirs(int number, Integer... brokers) throws Exception {
        List<TopicPartitionReplica> replicas =
            Arrays.stream(brokers).map(each -> replica(number, each)).collect(Collectors.toList());
        Map<TopicPartitionReplica, String> found = new HashMap<>();
        for (Map.Entry<TopicPartitionReplica, KafkaFuture<ReplicaLogDirInfo>> each
                : admin.describeReplicaLogDirs(replicas).values().entrySet()) {
            found.put(each.getKey(), get(each.getValue()).getCurrentReplicaLogDir());
        }
        return found;
    }

    // Two moves with a throttle: one is given another target and then cancelled, the other ends at a higher rate.
    private void moveReplicas() throws Exception {
        Set<String> throttled = new TreeSet<>(Set.of("0:1", "0:2", "0:3"));
        setRates(HARDLY_ANY_RATE);
        addThrottledReplicas(throttled);
        expectThrottled(throttled);
        addThrottledReplicas(Set.of("1:1", "1:2", "1:3"));
        expectThrottled(Set.of("0:1", "0:2", "0:3", "1:1", "1:2", "1:3"));
        Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = Map.of(
            partition(0), target(3, 2), partition(1), target(3, 1), partition(2), target(1, 9), DELETED, target(1, 2));
        Map<TopicPartition, String> refused =
            Map.of(partition(2), "InvalidReplicaAssignmentException", DELETED, "UnknownTopicOrPartitionException");
        expect(reassign(wanted), refused, "reassignments that are refused");
        expectMove(0, List.of(3, 2, 1), List.of(3), List.of(1));
        expect(moving(), Set.of(partition(0), partition(1)), "partitions that are moving");
        expect(reassign(Map.of(partition(1), target(2, 3))), Map.of(), "another target for a move under way");
        expectMove(1, List.of(2, 3, 1), List.of(3), List.of(1));
        expect(reassign(Map.of(partition(1), Optional.empty())), Map.of(), "a cancellation");
        Map<TopicPartition, String> nothing = Map.of(partition(1), "NoReassignmentInProgressException");
        expect(reassign(Map.of(partition(1), Optional.empty())), nothing, "a second cancellation");
        expectSoon(() -> Set.copyOf(replicasOf(1)), Set.of(1, 2), "replicas after a cancelled move");
        removeThrottledReplicas(Set.of("1:1", "1:2", "1:3"));
        expectThrottled(throttled);
        appendAndSubtract(throttled);
        expect(moving(), Set.of(partition(0)), "partitions that are still moving");
        setRates(GREAT_RATE);
        expectSoon(this::moving, Set.of(), "partitions that are moving");
        expectSoon(() -> replicasOf(0), List.of(3, 2), "replicas of partition 0");
        expectSoon(() -> inSync(0), Set.of(2, 3), "in-sync replicas of partition 0");
        removeRates();
        removeThrottledReplicas(throttled);
        expectThrottled(Set.of());
    }

    private void expectMove(int number, List<Integer> replicas, List<Integer> adding, List<Integer> removing)
            throws Exception {
        PartitionReassignment found = get(admin.listPartitionReassignments().reassignments()).get(partition(number));
        check(found != null, "partition " + number + " is not moving");
        expect(found.replicas(), replicas, "replicas of a move");
        expect(found.addingReplicas(), adding, "replicas that are added");
        expect(found.removingReplicas(), removing, "replicas that are removed");
    }

    private Set<TopicPartition> moving() throws Exception {
        return get(admin.listPartitionReassignments().reassignments()).keySet();
    }

    private Map<TopicPartition, String> reassign(Map<TopicPartition, Optional<NewPartitionReassignment>> wanted)
            throws Exception {
        Map<TopicPartition, String> refused = new HashMap<>();
        for (Map.Entry<TopicPartition, KafkaFuture<Void>> each
                : admin.alterPartitionReassignments(wanted).values().entrySet()) {
            String failure = failureOf(each.getValue());
            if (failure != null) {
                refused.put(each.getKey(), failure);
            }
        }
        return refused;
    }

    // Rates are set on brokers that have another one; a reported rate must have a value, or Cruise Control fails.
    private void setRates(String rate) throws Exception {
        for (int broker : BROKERS) {
            ConfigResource resource = brokerResource(broker);
            Config found = describe(resource);
            List<AlterConfigOp> changes = new ArrayList<>();
            for (String name : RATES) {
                if (found.get(name) == null || !found.get(name).value().equals(rate)) {
                    changes.add(set(name, rate));
                }
            }
            expect(changes.size(), RATES.size(), "rates to be set");
            alterAndWait(resource, changes);
            ConfigEntry.ConfigSource source = describe(resource).get(RATES.get(0)).source();
            expect(source, ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, "source of a rate");
        }
    }

    private void removeRates() throws Exception {
        for (int broker : BROKERS) {
            alterAndWait(brokerResource(broker), List.of(delete(RATES.get(0)), delete(RATES.get(1))));
        }
    }

    private void addThrottledReplicas(Set<String> replicas) throws Exception {
        Config found = describe(topicResource());
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String name : LISTS) {
            Set<String> merged = new TreeSet<>(replicas);
            if (found.get(name) != null && !found.get(name).value().isEmpty()) {
                merged.addAll(List.of(found.get(name).value().split(",")));
            }
            changes.add(set(name, String.join(",", merged)));
        }
        alterAndWait(topicResource(), changes);
    }

    private void removeThrottledReplicas(Set<String> replicas) throws Exception {
        Config found = describe(topicResource());
        List<AlterConfigOp> changes = new ArrayList<>();
        for (String name : LISTS) {
            List<String> kept = new ArrayList<>(List.of(found.get(name).value().split(",")));
            kept.removeIf(replicas::contains);
            changes.add(kept.isEmpty() ? delete(name) : set(name, String.join(",", kept)));
        }
        alterAndWait(topicResource(), changes);
    }

    // Cruise Control sets whole lists. The two other operations on lists are here because other tools use them.
    private void appendAndSubtract(Set<String> throttled) throws Exception {
        for (OpType operation : List.of(OpType.APPEND, OpType.SUBTRACT)) {
            List<AlterConfigOp> changes = LISTS.stream()
                .map(name -> new AlterConfigOp(new ConfigEntry(name, "2:1,2:2"), operation))
                .collect(Collectors.toList());
            get(admin.incrementalAlterConfigs(Map.of(topicResource(), changes)).all());
            Set<String> wanted = new TreeSet<>(throttled);
            if (operation == OpType.APPEND) {
                wanted.addAll(Set.of("2:1", "2:2"));
            }
            expectThrottled(wanted);
        }
    }

    // Each broker reports the settings of topics that it knows, in Kafka since KRaft too: one may be a moment behind.
    private void expectThrottled(Set<String> wanted) throws Exception {
        expectSoon(this::throttledReplicas, wanted, "throttled replicas");
    }

    private Set<String> throttledReplicas() throws Exception {
        Config found = describe(topicResource());
        List<Set<String>> lists = new ArrayList<>();
        for (String name : LISTS) {
            ConfigEntry entry = found.get(name);
            check(entry == null || entry.value() != null, name + " is reported without a value");
            lists.add(entry == null || entry.value().isEmpty() ? Set.of() : Set.of(entry.value().split(",")));
        }
        expect(lists.get(0), lists.get(1), "the two lists of throttled replicas");
        return lists.get(0);
    }

    // A leader moves in two steps: its broker becomes the first replica, then the first replica is elected.
    private void moveLeaders() throws Exception {
        expect(reassign(Map.of(partition(0), target(2, 3))), Map.of(), "replicas in another order");
        expectSoon(this::moving, Set.of(), "partitions that are moving");
        expectSoon(() -> replicasOf(0), List.of(2, 3), "replicas in another order");
        Set<TopicPartition> places = Set.of(partition(0), partition(2), DELETED);
        Map<TopicPartition, Optional<Throwable>> found =
            get(admin.electLeaders(ElectionType.PREFERRED, places).partitions());
        expect(found.keySet(), places, "partitions of an election");
        check(
            Set.of("none", "ElectionNotNeededException").contains(nameOf(found.get(partition(0)))),
            "election of partition 0: " + found.get(partition(0)));
        expect(nameOf(found.get(partition(2))), "ElectionNotNeededException", "election of partition 2");
        expect(nameOf(found.get(DELETED)), "UnknownTopicOrPartitionException", "election of an unknown partition");
        expectSoon(() -> partitionsOf(TOPIC).get(0).leader().id(), 2, "leader of partition 0");
    }

    private void moveBetweenDisks() throws Exception {
        String before = logDirs(0, 2).get(replica(0, 2));
        String after = get(admin.describeLogDirs(List.of(2)).descriptions().get(2)).keySet().stream()
            .filter(each -> !each.equals(before)).findFirst().orElseThrow();
        Map<TopicPartitionReplica, String> wanted =
            Map.of(replica(0, 2), after, replica(2, 1), "/no/such/directory");
        Map<TopicPartitionReplica, KafkaFuture<Void>> results = admin.alterReplicaLogDirs(wanted).values();
        expect(failureOf(results.get(replica(0, 2))), null, "a move between disks");
        expect(failureOf(results.get(replica(2, 1))), "LogDirNotFoundException", "a move to an unknown directory");
        expectSoon(this::isMovingBetweenDisks, false, "whether a replica moves between disks");
        expect(logDirs(0, 2).get(replica(0, 2)), after, "log directory after the move");
        expect(endOffset(), (long) RECORDS / 2, "end offset of partition 0");
    }

    private boolean isMovingBetweenDisks() throws Exception {
        for (KafkaFuture<Map<String, LogDirDescription>> each
                : admin.describeLogDirs(BROKERS).descriptions().values()) {
            for (LogDirDescription description : get(each).values()) {
                if (description.replicaInfos().values().stream().anyMatch(ReplicaInfo::isFuture)) {
                    return true;
                }
            }
        }
        return false;
    }

    private long endOffset() {
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return consumer.endOffsets(Set.of(partition(0))).get(partition(0));
        }
    }

    private void alterAndWait(ConfigResource resource, List<AlterConfigOp> changes) throws Exception {
        get(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
        expectSoon(() -> {
            Config found = describe(resource);
            return changes.stream().map(AlterConfigOp::configEntry).allMatch(wanted -> {
                ConfigEntry entry = found.get(wanted.name());
                boolean isNothing = entry == null || entry.value() == null || entry.value().isEmpty();
                return isNothing ? wanted.value() == null : entry.value().equals(wanted.value());
            });
        }, true, "whether " + changes + " are reported for " + resource);
    }

    private Config describe(ConfigResource resource) throws Exception {
        return get(admin.describeConfigs(List.of(resource)).all()).get(resource);
    }

    private List<TopicPartitionInfo> partitionsOf(String topic) throws Exception {
        return get(admin.describeTopics(List.of(topic)).topicNameValues().get(topic)).partitions();
    }

    private List<Integer> replicasOf(int number) throws Exception {
        return partitionsOf(TOPIC).get(number).replicas().stream().map(Node::id).collect(Collectors.toList());
    }

    private Set<Integer> inSync(int number) throws Exception {
        return partitionsOf(TOPIC).get(number).isr().stream().map(Node::id).collect(Collectors.toSet());
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), OpType.SET);
    }

    private static AlterConfigOp delete(String name) {
        return new AlterConfigOp(new ConfigEntry(name, null), OpType.DELETE);
    }

    private static Optional<NewPartitionReassignment> target(Integer... replicas) {
        return Optional.of(new NewPartitionReassignment(List.of(replicas)));
    }

    private static ConfigResource brokerResource(int broker) {
        return new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(broker));
    }

    private static ConfigResource topicResource() {
        return new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
    }

    private static TopicPartition partition(int number) {
        return new TopicPartition(TOPIC, number);
    }

    private static TopicPartitionReplica replica(int number, int broker) {
        return new TopicPartitionReplica(TOPIC, number, broker);
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    /** The name of the exception, or null where it succeeded. */
    private static String failureOf(KafkaFuture<?> future) throws Exception {
        try {
            get(future);
            return null;
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        }
    }

    private static String nameOf(Optional<Throwable> failure) {
        return failure.map(each -> each.getClass().getSimpleName()).orElse("none");
    }

    /** Asks again while the result is another one, or a topic is not known yet. */
    private static <T> void expectSoon(Callable<T> question, T wanted, String what) throws Exception {
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        Object found = null;
        while (!wanted.equals(found)) {
            check(System.currentTimeMillis() < deadline, what + ": still " + found + " instead of " + wanted);
            try {
                found = question.call();
            } catch (ExecutionException failed) {
                check(failed.getCause() instanceof UnknownTopicOrPartitionException, what + ": " + failed);
                found = failed.getCause();
            }
            Thread.sleep(50);
        }
    }

    private static void expect(Object found, Object wanted, String what) {
        boolean isSame = wanted == null ? found == null : wanted.equals(found);
        check(isSame, what + ": " + found + " instead of " + wanted);
    }

    private static void check(boolean isTrue, String otherwise) {
        if (!isTrue) {
            throw new AssertionError(otherwise);
        }
    }
}
