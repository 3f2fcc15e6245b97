import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command line tools one after the other in one process: a main class with its arguments per line. */
public final class Tools {
    private static final class Ended extends RuntimeException {
        Ended(String message) {
            super(message, null, false, false);
        }
    }

    /** The first code counts: some tools catch what ends them, and then end a second time. */
    private static Integer exitCode;

    public static void main(String[] unused) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        // Set once: Scala's println keeps the stream that it finds first.
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            printed.reset();
            int code = run(json.readValue(line, String[].class));
            capture.flush();
            Map<String, Object> answer = Map.of("code", code, "output", printed.toString(StandardCharsets.UTF_8));
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        exitCode = exitCode == null ? code : exitCode;
        throw new Ended(message);
    }

    private static int run(String[] words) {
        exitCode = null;
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (InvocationTargetException wrapped) {
            if (exitCode == null) {
                wrapped.getCause().printStackTrace(System.out);
                return 1;
            }
            return exitCode;
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace(System.out);
            return 1;
        }
    }
}
