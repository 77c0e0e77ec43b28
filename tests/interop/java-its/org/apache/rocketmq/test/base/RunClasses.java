package org.apache.rocketmq.test.base;

import java.io.PrintStream;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs one test class after the other and prints one JSON line a test: class, method ("" for the class), result
 * (passed, failed, assumption, ignored), seconds, stored (messages in the test's topics at its end)
 * and the first line of a failure. A test that is over its limit fails, and ends the process.
 *
 * <p>Arguments: the limit of a test in seconds, and the classes without org.apache.rocketmq.test.
 */
public final class RunClasses {
    private static final String PACKAGE = "org.apache.rocketmq.test.";
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        // What the tests print is no JSON.
        System.setOut(System.err);
        Lines lines = new Lines(Long.parseLong(arguments[0]));
        lines.watch();
        JUnitCore core = new JUnitCore();
        core.addListener(lines);
        for (int i = 1; i < arguments.length; i++) {
            core.run(Class.forName(PACKAGE + arguments[i]));
        }
        // Some tests leave clients behind, whose threads are no daemons.
        Runtime.getRuntime().halt(0);
    }

    /** Listens to JUnit, one test at a time. */
    private static final class Lines extends RunListener {
        private final long limitS;
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition changed = lock.newCondition();
        private final Thread tests = Thread.currentThread();
        private JSONObject line;
        private long began;

        Lines(long limitS) {
            this.limitS = limitS;
        }

        @Override
        public void testStarted(Description test) {
            begin(test);
            line.put("result", "passed");
        }

        @Override
        public void testIgnored(Description test) {
            begin(test);
            end("ignored", "");
            print();
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            end("assumption", firstLine(failure.getException()));
        }

        @Override
        public void testFailure(Failure failure) {
            if (line != null) {
                end("failed", firstLine(failure.getException()));
                return;
            }
            // Before or after all tests of the class.
            begin(failure.getDescription());
            end("failed", firstLine(failure.getException()));
            print();
        }

        @Override
        public void testFinished(Description test) {
            print();
        }

        void watch() {
            Thread watcher = new Thread(this::endLate, "limit");
            watcher.setDaemon(true);
            watcher.start();
        }

        private void endLate() {
            lock.lock();
            try {
                while (true) {
                    long left = line == null
                        ? TimeUnit.SECONDS.toNanos(limitS)
                        : began + TimeUnit.SECONDS.toNanos(limitS) - System.nanoTime();
                    if (left <= 0) {
                        StackTraceElement[] where = tests.getStackTrace();
                        end("failed", "no end after " + limitS + " s" + place(where));
                        line.put("seconds", limitS);
                        for (StackTraceElement frame : where) {
                            System.err.println("    at " + frame);
                        }
                        OUT.println(line.toJSONString());
                        OUT.flush();
                        Runtime.getRuntime().halt(1);
                    }
                    changed.awaitNanos(left);
                }
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            } finally {
                lock.unlock();
            }
        }

        private void begin(Description test) {
            lock.lock();
            try {
                IntegrationTestBase.TOPICS.clear();
                line = new JSONObject(true);
                line.put("class", test.getClassName().replace(PACKAGE, ""));
                line.put("method", test.getMethodName() == null ? "" : test.getMethodName());
                began = System.nanoTime();
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        private void end(String result, String why) {
            line.put("result", result);
            line.put("why", why);
        }

        private void print() {
            long tookNs = System.nanoTime() - began;
            long stored = 0;
            for (String topic : IntegrationTestBase.TOPICS) {
                stored += IntegrationTestBase.stored(BaseConf.nsAddr, topic);
            }
            lock.lock();
            try {
                line.put("seconds", Math.round(tookNs / 1e8) / 10.0);
                line.put("stored", stored);
                OUT.println(line.toJSONString());
                OUT.flush();
                line = null;
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        private static String firstLine(Throwable error) {
            String said = String.valueOf(error).split("\n", 2)[0];
            return said + place(error.getStackTrace());
        }

        /** Where in the tests, or "". */
        private static String place(StackTraceElement[] stack) {
            for (StackTraceElement frame : stack) {
                if (frame.getClassName().startsWith(PACKAGE)) {
                    return " at " + frame.getFileName() + ":" + frame.getLineNumber();
                }
            }
            return "";
        }
    }
}
