import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * The stock 5.3 client: sends one message after the other and prints the broker that took each.
 * Arguments: name servers, topic, count.
 */
final class Sends {
    public static void main(String[] arguments) {
        PrintStream out = System.out;
        System.setOut(System.err);
        int status = 0;
        try {
            DefaultMQProducer producer = new DefaultMQProducer(arguments[1]);
            producer.setNamesrvAddr(arguments[0]);
            producer.setSendMsgTimeout(10000);
            producer.start();
            for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
                byte[] body = ("m" + number).getBytes(StandardCharsets.UTF_8);
                SendResult result = producer.send(new Message(arguments[1], body));
                out.println(result.getSendStatus() + " " + result.getMessageQueue().getBrokerName());
            }
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        // The library leaves threads behind.
        System.exit(status);
    }
}
