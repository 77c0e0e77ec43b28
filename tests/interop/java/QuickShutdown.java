/**
 * Lets clients of RocketMQ shut down at once.
 *
 * A client's shutdown waits for a thread that looks every three seconds whether it is to end. It
 * looks at once when its waiting is interrupted.
 */
public final class QuickShutdown {
    private static final long PERIOD_MS = 20;

    /** From now on, whatever the calling thread shuts down. */
    public static void begin() {
        Thread caller = Thread.currentThread();
        Thread thread = new Thread(() -> wakeFor(caller), "quick-shutdown");
        thread.setDaemon(true);
        thread.start();
    }

    private static void wakeFor(Thread caller) {
        Thread[] threads = new Thread[1000];
        while (true) {
            int count = shutsDown(caller) ? Thread.enumerate(threads) : 0;
            for (int index = 0; index < count; index++) {
                Thread one = threads[index];
                if (one.getName().equals("NettyEventExecutor")
                    && one.getState() == Thread.State.TIMED_WAITING) {
                    one.interrupt();
                }
            }
            try {
                Thread.sleep(PERIOD_MS);
            } catch (InterruptedException none) {
                return;
            }
        }
    }

    private static boolean shutsDown(Thread caller) {
        if (caller.getState() != Thread.State.TIMED_WAITING) {
            return false;
        }
        for (StackTraceElement frame : caller.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread")
                && frame.getMethodName().equals("shutdown")) {
                return true;
            }
        }
        return false;
    }

    private QuickShutdown() {
    }
}
