// Spring's STOMP client over TCP: java -cp 'LIB/*' Spring.java PORT

import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.messaging.converter.SimpleMessageConverter;
import org.springframework.messaging.simp.stomp.ReactorNettyTcpStompClient;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompFrameHandler;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandlerAdapter;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

public class Spring {
    record Message(StompHeaders headers, byte[] body) {
        String text() { return new String(body, StandardCharsets.UTF_8); }
    }

    static final long BOUND_S = 60;
    static int port;
    static ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();

    static class Session extends StompSessionHandlerAdapter {
        final ReactorNettyTcpStompClient client = new ReactorNettyTcpStompClient("127.0.0.1", port);
        final BlockingQueue<Message> inbox = new LinkedBlockingQueue<>();
        StompSession session;
        final CompletableFuture<StompHeaders> connected = new CompletableFuture<>();

        Session(long heartBeatMs) throws Exception {
            client.setMessageConverter(new SimpleMessageConverter());
            client.setTaskScheduler(scheduler);
            client.setDefaultHeartbeat(new long[] {heartBeatMs, heartBeatMs});
            client.setReceiptTimeLimit(BOUND_S * 1000);
            StompHeaders headers = new StompHeaders();
            headers.setLogin("guest");
            headers.setPasscode("secret");
            session = client.connectAsync(headers, this).get(BOUND_S, TimeUnit.SECONDS);
            session.setAutoReceipt(true);
        }

        @Override public void afterConnected(StompSession session, StompHeaders headers) { connected.complete(headers); }

        @Override public void handleFrame(StompHeaders headers, Object body) { fail("ERROR: " + headers); }

        @Override public void handleException(StompSession s, StompCommand c, StompHeaders h, byte[] b, Throwable e) { fail(e); }

        @Override public void handleTransportError(StompSession s, Throwable e) { fail(e); }

        void receipt(StompSession.Receiptable asked) throws Exception {
            CountDownLatch answered = new CountDownLatch(1);
            asked.addReceiptTask(() -> answered.countDown());
            check(answered.await(BOUND_S, TimeUnit.SECONDS), "no receipt");
        }

        void send(String queue, byte[] body, Map<String, String> more) throws Exception {
            StompHeaders headers = new StompHeaders();
            headers.setDestination(queue);
            headers.setAll(more);
            receipt(session.send(headers, body));
        }

        void send(String queue, String... bodies) throws Exception {
            for (String body : bodies) send(queue, body.getBytes(StandardCharsets.UTF_8), Map.of());
        }

        void subscribe(String queue, String ack) throws Exception {
            StompHeaders headers = new StompHeaders();
            headers.setDestination(queue);
            headers.setAck(ack);
            receipt(session.subscribe(headers, new StompFrameHandler() {
                @Override public Type getPayloadType(StompHeaders headers) { return byte[].class; }
                @Override public void handleFrame(StompHeaders headers, Object body) { inbox.add(new Message(headers, (byte[]) body)); }
            }));
        }

        Message take() throws Exception {
            Message message = inbox.poll(BOUND_S, TimeUnit.SECONDS);
            check(message != null, "no message");
            return message;
        }

        void answer(Message message, boolean consumed) throws Exception {
            receipt(session.acknowledge(message.headers().getAck(), consumed));
        }

        void end() {
            session.disconnect();
            client.shutdown();
        }
    }

    static void fail(Object why) {
        System.err.println(why);
        if (why instanceof Throwable thrown) thrown.printStackTrace();
        System.exit(1);
    }

    static void check(boolean holds, Object why) { if (!holds) fail(why); }

    static List<String> left(String queue) throws Exception {
        Session session = new Session(0);
        session.send(queue, "end");
        session.subscribe(queue, "auto");
        List<String> found = new ArrayList<>();
        for (String text = session.take().text(); !text.equals("end"); text = session.take().text()) found.add(text);
        session.end();
        return found;
    }

    static void passed(String check, String queue, String... left) throws Exception {
        List<String> found = left(queue);
        check(found.equals(List.of(left)), check + " left " + found);
        System.out.println("passed " + check);
    }

    public static void main(String[] arguments) throws Exception {
        port = Integer.parseInt(arguments[0]);
        scheduler.initialize();
        Session one = new Session(0);
        System.out.println("version " + one.connected.get(BOUND_S, TimeUnit.SECONDS).getFirst("version"));

        one.send("/queue/spring-receipts", "0", "1", "2");
        passed("receipts", "/queue/spring-receipts", "0", "1", "2");

        one.send("/queue/spring-auto", "x");
        one.subscribe("/queue/spring-auto", "auto");
        check(one.take().text().equals("x"), "another message");
        one.end();
        passed("ack auto", "/queue/spring-auto");

        one = new Session(0);
        one.send("/queue/spring-client", "0", "1", "2", "3");
        one.subscribe("/queue/spring-client", "client");
        List<Message> got = List.of(one.take(), one.take(), one.take(), one.take());
        one.answer(got.get(2), true);
        one.end();
        passed("ack client", "/queue/spring-client", "3");

        one = new Session(0);
        one.send("/queue/spring-individual", "0", "1", "2");
        one.subscribe("/queue/spring-individual", "client-individual");
        got = List.of(one.take(), one.take(), one.take());
        one.answer(got.get(2), true);
        one.answer(got.get(1), false);
        Message again = one.take();
        check(again.text().equals("1") && again.headers().getFirst("redelivered").equals("true"), again.headers());
        one.answer(again, true);
        one.end();
        passed("ack client-individual and nack", "/queue/spring-individual", "0");

        System.out.println("cannot transactions: Spring's StompSession has no BEGIN");

        one = new Session(300);
        Thread.sleep(1800); // longer than the broker's and the client's patience
        check(one.session.isConnected(), "the connection ended");
        one.send("/queue/spring-beats", "x");
        one.end();
        passed("heart-beats", "/queue/spring-beats", "x");

        one = new Session(0);
        one.subscribe("/queue/spring-bodies", "auto");
        byte[] nul = {0, 1, 2, 0, -1, -2, 10, 0};
        one.send("/queue/spring-bodies", nul, Map.of());
        check(Arrays.equals(one.take().body(), nul), "another body");
        System.out.println("passed bodies with NUL");

        Map<String, String> values = Map.of("a:b", "c:d", "slash", "a\\ b", "lines", "one\ntwo", "returns", "a\rb", "name", "grüße ☃");
        one.send("/queue/spring-bodies", new byte[] {1}, values);
        StompHeaders headers = one.take().headers();
        values.forEach((name, value) -> check(value.equals(headers.getFirst(name)), name + " in " + headers));
        System.out.println("passed escapes");

        byte[] large = new byte[20 * 1024 * 1024];
        for (int place = 0; place < large.length; place++) large[place] = (byte) (place % 251);
        one.send("/queue/spring-bodies", large, Map.of());
        check(Arrays.equals(one.take().body(), large), "another body");
        System.out.println("passed 20 MB");
        System.exit(0);
    }
}
