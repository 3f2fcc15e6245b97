import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;

/** TLS and the login of a client, from the file that TIDELOG_COMPAT_SECURITY names. */
final class Security {
    private Security() {}

    static Map<String, Object> secured(Map<String, Object> settings) {
        String file = System.getenv("TIDELOG_COMPAT_SECURITY");
        if (file == null) {
            return settings;
        }
        Map<String, Object> secured = new HashMap<>(settings);
        JsonNode found;
        try {
            found = new ObjectMapper().readTree(new File(file));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        secured.put("security.protocol", found.has("user") ? "SASL_SSL" : "SSL");
        secured.put("ssl.truststore.type", "PEM");
        secured.put("ssl.truststore.location", found.get("authority").asText());
        if (found.has("certificate")) {
            secured.put("ssl.keystore.type", "PEM");
            secured.put("ssl.keystore.location", found.get("certificate").asText());
        }
        if (found.has("user")) {
            secured.put("sasl.mechanism", "SCRAM-SHA-512");
            secured.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\";",
                found.get("user").asText(), found.get("password").asText()));
        }
        return secured;
    }
}
