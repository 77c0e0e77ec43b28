import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/**
 * An application on rocketmq-spring-boot-starter: each way of its template to send, and each kind of its listeners.
 * It prints one line of words for each thing that came of it. Arguments: Spring's, as --rocketmq.name-server=HOST:PORT.
 */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Application {
    private static final long PATIENCE_S = 60;
    private static final long DELAY_MS = 2000;
    private static final CountDownLatch MISSING = new CountDownLatch(20);
    private static final CountDownLatch HEARD = new CountDownLatch(1);
    private static final Map<String, Long> SENT_MS = new ConcurrentHashMap<>();
    private static final Map<String, Integer> ATTEMPTS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        int status = 0;
        try {
            ConfigurableApplicationContext context = new SpringApplication(Application.class).run(arguments);
            RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
            normal(template);
            ordered(template);
            delayed(template);
            transactions(template);
            request(template);
            pulled(template);
            broadcast(template);
            if (!MISSING.await(PATIENCE_S, TimeUnit.SECONDS)) {
                tell("missing", MISSING.getCount());
                status = 1;
            }
            context.close();
        } catch (Exception error) {
            error.printStackTrace();
            status = 1;
        }
        System.exit(status);
    }

    private static void normal(RocketMQTemplate template) throws Exception {
        Message<String> red = MessageBuilder.withPayload("red-5")
            .setHeader(RocketMQHeaders.KEYS, "k1").setHeader("weight", 5).build();
        tell("sent", template.syncSend("spring-normal:red", red).getSendStatus());
        CountDownLatch answered = new CountDownLatch(1);
        template.asyncSend("spring-normal:red", "async", new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                tell("sent-async", result.getSendStatus());
                answered.countDown();
            }

            @Override
            public void onException(Throwable error) {
                tell("failed-async", error);
                answered.countDown();
            }
        });
        answered.await(PATIENCE_S, TimeUnit.SECONDS);
        template.sendOneWay("spring-normal:red", "oneway");
        List<Message<String>> batch = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            batch.add(MessageBuilder.withPayload("batch-" + number).build());
        }
        tell("sent-batch", template.syncSend("spring-normal:red", batch).getSendStatus());
        tell("sent", template.syncSend("spring-normal:red", "fails-once").getSendStatus());
    }

    private static void ordered(RocketMQTemplate template) {
        for (int number = 0; number < 4; number++) {
            tell("sent", template.syncSendOrderly("spring-ordered", "step-" + number, "one key").getSendStatus());
        }
    }

    private static void delayed(RocketMQTemplate template) {
        sendLate("delay-seconds");
        tell("sent", template.syncSendDelayTimeSeconds("spring-delayed", "delay-seconds", 2).getSendStatus());
        sendLate("delay-ms");
        tell("sent", template.syncSendDelayTimeMills("spring-delayed", "delay-ms", DELAY_MS).getSendStatus());
        sendLate("deliver-at");
        long at = System.currentTimeMillis() + DELAY_MS;
        tell("sent", template.syncSendDeliverTimeMills("spring-delayed", "deliver-at", at).getSendStatus());
    }

    private static void broadcast(RocketMQTemplate template) throws InterruptedException {
        Message<String> light = MessageBuilder.withPayload("light").setHeader("weight", 1).build();
        // A group that broadcasts begins at the end of its queues, at a time that it does not tell.
        while (HEARD.getCount() > 0) {
            template.syncSend("spring-normal:blue", light);
            HEARD.await(1, TimeUnit.SECONDS);
        }
    }

    private static void sendLate(String body) {
        SENT_MS.put(body, System.currentTimeMillis());
    }

    private static void transactions(RocketMQTemplate template) {
        for (String fate : new String[] {"commit", "rollback", "unknown"}) {
            Message<String> half = MessageBuilder.withPayload("half-" + fate).setHeader("fate", fate).build();
            LocalTransactionState state =
                template.sendMessageInTransaction("spring-transactions", half, fate).getLocalTransactionState();
            tell("transaction", fate, state);
        }
    }

    private static void request(RocketMQTemplate template) {
        // Java's clients share out queues every 20 s: one that got none at its start waits as long.
        String reply = template.sendAndReceive(
            "spring-requests", "question", String.class, PATIENCE_S * 1000);
        tell("reply", reply);
    }

    private static void pulled(RocketMQTemplate template) {
        template.syncSend("spring-pulled", "pulled");
        List<String> bodies = List.of();
        long end = System.currentTimeMillis() + PATIENCE_S * 1000;
        while (bodies.isEmpty() && System.currentTimeMillis() < end) {
            bodies = template.receive(String.class);
        }
        tell("received", bodies);
    }

    private static synchronized void tell(Object... words) {
        StringBuilder line = new StringBuilder("told");
        for (Object word : words) {
            line.append(' ').append(word);
        }
        System.out.println(line);
    }

    private static void got(Object... words) {
        tell(words);
        MISSING.countDown();
    }

    @Component
    @RocketMQMessageListener(topic = "spring-normal", consumerGroup = "spring-tagged", selectorExpression = "red",
        delayLevelWhenNextConsume = 1)
    static class Tagged implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            String body = new String(message.getBody());
            if (body.equals("fails-once") && ATTEMPTS.merge(body, 1, Integer::sum) == 1) {
                throw new IllegalStateException("the first attempt fails");
            }
            got("tagged", body, message.getTags(), message.getKeys(), message.getReconsumeTimes());
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-normal", consumerGroup = "spring-filtered",
        selectorType = SelectorType.SQL92, selectorExpression = "weight > 3")
    static class Filtered implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            got("filtered", body);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-normal", consumerGroup = "spring-broadcast", selectorExpression = "blue",
        messageModel = MessageModel.BROADCASTING)
    static class Broadcast implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            if (HEARD.getCount() > 0) {
                HEARD.countDown();
                got("broadcast", body);
            }
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-ordered", consumerGroup = "spring-ordered",
        consumeMode = ConsumeMode.ORDERLY)
    static class Ordered implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            got("ordered", body);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-delayed", consumerGroup = "spring-delayed")
    static class Delayed implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            boolean early = System.currentTimeMillis() - SENT_MS.get(body) < DELAY_MS;
            got("delayed", body, early ? "early" : "in time");
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-transactions", consumerGroup = "spring-transactions")
    static class Committed implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            got("committed", body);
        }
    }

    @Component
    @RocketMQMessageListener(topic = "spring-requests", consumerGroup = "spring-requests")
    static class Answering implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String body) {
            got("asked", body);
            return "answer to " + body;
        }
    }

    @RocketMQTransactionListener
    static class Transactions implements RocketMQLocalTransactionListener {
        @Override
        @SuppressWarnings("rawtypes")
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object fate) {
            if (fate.equals("commit")) {
                return RocketMQLocalTransactionState.COMMIT;
            }
            return fate.equals("rollback")
                ? RocketMQLocalTransactionState.ROLLBACK : RocketMQLocalTransactionState.UNKNOWN;
        }

        @Override
        @SuppressWarnings("rawtypes")
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            got("checked", message.getHeaders().get("fate"));
            return RocketMQLocalTransactionState.COMMIT;
        }
    }
}
