import java.io.File;
import org.apache.activemq.util.LockFile;

/** Lock a file that accepts no bytes, three times, and see who holds its lock. */
public class Twice {
    public static void main(String[] args) throws Exception {
        LockFile lock = new LockFile(new File("/dev/full"), false);
        for (int i = 0; i < 3; i++) {
            try { lock.lock(); } catch (Exception e) { System.out.println(e.getMessage()); }
        }
        String pid = " " + ProcessHandle.current().pid() + " ";
        new ProcessBuilder("grep", pid, "/proc/locks").inheritIO().start().waitFor();
    }
}
