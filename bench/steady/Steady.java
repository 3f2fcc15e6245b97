import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes a small record every few milliseconds with the Java client's defaults, and prints when each was sent and
 * acknowledged.
 *
 * <p>Arguments: bootstrap servers, topic, number of partitions, milliseconds between records. A line of output is the
 * partition and two wall clock times in nanoseconds. It ends when its standard input does.
 */
public final class Steady {
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[2]);
        long pauseMicros = (long) (Double.parseDouble(arguments[3]) * 1000);
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException closed) {
                // as if it had ended
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes);
        for (int number = 0; ; number++) {
            int partition = number % partitions;
            long sent = wallNanos();
            producer.send(new ProducerRecord<>(arguments[1], partition, null, new byte[100]), (metadata, error) -> {
                if (error == null) {
                    System.out.println(partition + " " + sent + " " + wallNanos());
                }
            });
            TimeUnit.MICROSECONDS.sleep(pauseMicros);
        }
    }

    private static long wallNanos() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }
}
