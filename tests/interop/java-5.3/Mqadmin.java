import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin of RocketMQ 5.3, one command after the other in one process: a line of words each; and their names. */
final class Mqadmin extends MQAdminStartup {
    public static void main(String[] none) {
        try {
            answerAll();
        } catch (IOException error) {
            error.printStackTrace();
        }
        // The library leaves threads behind.
        System.exit(0);
    }

    private static void answerAll() throws IOException {
        System.setErr(System.out);
        QuickShutdown.begin();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            // Some commands keep a client that they have shut down: each run makes them anew.
            SUB_COMMANDS.clear();
            if (line.equals("commands")) {
                initCommand();
                SUB_COMMANDS.forEach(one -> System.out.println(one.commandName()));
            } else {
                main0(line.split("\t"), null);
            }
            System.out.println("\004");
            System.out.flush();
        }
    }

    private Mqadmin() {
    }
}
