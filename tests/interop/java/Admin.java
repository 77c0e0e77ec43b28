import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin, one command after the other in one process; each answer is what it printed. */
final class Admin extends MQAdminStartup {
    static void run() throws Exception {
        Events.ready();
        for (JSONObject command = Events.read(); command != null; command = Events.read()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = System.out;
            PrintStream err = System.err;
            PrintStream both = new PrintStream(printed, true, "UTF-8");
            System.setOut(both);
            System.setErr(both);
            try {
                // Some commands keep a client that they have shut down: each run makes them anew.
                subCommandList.clear();
                main0(
                    command.getJSONArray("arguments").toArray(new String[0]), null);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            JSONObject asked = command;
            String text = printed.toString("UTF-8");
            Events.emit("answer", event -> {
                event.put("id", asked.getInteger("id"));
                event.put("printed", text);
            });
        }
    }

    private Admin() {
    }
}
