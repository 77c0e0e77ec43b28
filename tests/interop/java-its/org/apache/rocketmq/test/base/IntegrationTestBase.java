package org.apache.rocketmq.test.base;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Stands before RocketMQ's class of this name on the class path and starts nothing: it hands their
 * BaseConf controllers that never run, which only carry the names and the port of a cluster that
 * does. It remembers the tests' topics, so that the runner can count what was stored.
 *
 * <p>Properties: its.namesrv (a port of 127.0.0.1), its.cluster, its.brokers (a,b).
 */
public class IntegrationTestBase {
    /** Topics that tests asked for since the runner last looked. */
    static final ConcurrentLinkedQueue<String> TOPICS = new ConcurrentLinkedQueue<>();

    private static final int TOPIC_S = 60;
    private static final long ASK_PERIOD_MS = 50;
    private static final String[] BROKERS = System.getProperty("its.brokers").split(",");
    private static int brokersGiven;

    public static NamesrvController createAndStartNamesrv() {
        NettyServerConfig listen = new NettyServerConfig();
        listen.setListenPort(Integer.getInteger("its.namesrv"));
        return new NamesrvController(new NamesrvConfig(), listen);
    }

    public static synchronized BrokerController createAndStartBroker(String nsAddr) {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerClusterName(System.getProperty("its.cluster"));
        config.setBrokerName(BROKERS[brokersGiven++]);
        config.setBrokerIP1("127.0.0.1");
        return new BrokerController(
            config, new NettyServerConfig(), new NettyClientConfig(), new MessageStoreConfig());
    }

    public static boolean initTopic(String topic, String nsAddr, String clusterName) {
        return initTopic(topic, nsAddr, clusterName, 8);
    }

    /** Creates the topic at every master and waits until the name server routes to all of them. */
    public static boolean initTopic(
        String topic, String nsAddr, String clusterName, int queueNumbers) {
        TOPICS.add(topic);
        long deadline = System.nanoTime() + TOPIC_S * 1_000_000_000L;
        try (Admin admin = new Admin(nsAddr)) {
            while (true) {
                try {
                    admin.tool.createTopic(clusterName, topic, queueNumbers);
                    if (admin.brokersOf(topic).size() == BROKERS.length) {
                        return true;
                    }
                } catch (Exception e) {
                    if (System.nanoTime() > deadline) {
                        throw new AssertionError("topic " + topic + " cannot be made", e);
                    }
                }
                if (System.nanoTime() > deadline) {
                    throw new AssertionError("topic " + topic + " is not on all of "
                        + String.join(",", BROKERS));
                }
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(ASK_PERIOD_MS);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Messages in a topic, by the brokers' word. */
    static long stored(String nsAddr, String topic) {
        try (Admin admin = new Admin(nsAddr)) {
            long sum = 0;
            for (TopicOffset offset :
                admin.tool.examineTopicStats(topic).getOffsetTable().values()) {
                sum += offset.getMaxOffset() - offset.getMinOffset();
            }
            return sum;
        } catch (Exception e) {
            throw new AssertionError("nobody tells how much of " + topic + " is stored", e);
        }
    }

    /** A tool that is shut down with its block. */
    private static final class Admin implements AutoCloseable {
        final DefaultMQAdminExt tool = new DefaultMQAdminExt();

        Admin(String nsAddr) {
            tool.setInstanceName(java.util.UUID.randomUUID().toString());
            tool.setNamesrvAddr(nsAddr);
            try {
                tool.start();
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        }

        Set<String> brokersOf(String topic) throws Exception {
            Set<String> names = new HashSet<>();
            for (MessageQueue queue :
                tool.examineTopicStats(topic).getOffsetTable().keySet()) {
                names.add(queue.getBrokerName());
            }
            return names;
        }

        @Override
        public void close() {
            tool.shutdown();
        }
    }
}
