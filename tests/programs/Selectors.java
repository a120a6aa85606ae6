import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;

/**
 * Under `isthmus run --each`: Java on the first node opens 100 connections to the
 * second, each with a selector of its own, and gets back what it sent over each.
 * The second serves them all by one selector. Java's sockets are IPv6 ones.
 */
class Selectors {
    static final int COUNT = 100;
    static final int PORT = 7000;
    static final int DEADLINE_MS = 150_000;

    static byte[] data(int number) {
        byte[] bytes = new byte[100_000 + number];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) ((number + 1) * (at ^ at >> 8));
        }
        return bytes;
    }

    static void serve() throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress(PORT), COUNT).configureBlocking(false);
        server.register(selector, SelectionKey.OP_ACCEPT);
        long received = 0;
        for (int closed = 0; closed < COUNT;) {
            ready(selector);
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel accepted = server.accept();
                    accepted.configureBlocking(false);
                    accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(8192));
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                if (key.isReadable()) {
                    int count = channel.read(buffer.clear());
                    if (count < 0) {
                        channel.close();
                        closed++;
                        continue;
                    }
                    received += count;
                    buffer.flip();
                }
                channel.write(buffer);
                key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
            }
            selector.selectedKeys().clear();
        }
        System.out.println("served " + received + " bytes");
    }

    /** Waits until a channel of the selector is ready. */
    static void ready(Selector selector) throws IOException {
        check(selector.select(DEADLINE_MS) > 0, "nothing within the time");
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }

    /** One connection with its selector. */
    static class Client {
        final Selector selector = Selector.open();
        final SocketChannel channel = SocketChannel.open();
        final SelectionKey key;
        final byte[] bytes;

        Client(InetSocketAddress server, int number) throws IOException {
            bytes = data(number);
            channel.configureBlocking(false);
            key = channel.register(selector, SelectionKey.OP_CONNECT);
            channel.connect(server);
        }

        void connected() throws IOException {
            while (!channel.finishConnect()) {
                ready(selector);
                selector.selectedKeys().clear();
            }
        }

        void close() throws IOException {
            channel.close();
            selector.close();
        }

        void echo() throws IOException {
            key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
            ByteBuffer out = ByteBuffer.wrap(bytes);
            ByteBuffer in = ByteBuffer.allocate(bytes.length);
            while (in.hasRemaining()) {
                ready(selector);
                if (key.isWritable()) {
                    channel.write(out);
                }
                if (key.isReadable()) {
                    check(channel.read(in) >= 0, "closed by the server");
                }
                if (!out.hasRemaining()) {
                    key.interestOps(SelectionKey.OP_READ);
                }
                selector.selectedKeys().clear();
            }
            check(java.util.Arrays.equals(in.array(), bytes), "other bytes came back");
        }
    }

    /** Connects as soon as the server listens. */
    static Client first(InetSocketAddress server) throws Exception {
        while (true) {
            Client client = new Client(server, 0);
            try {
                client.connected();
                return client;
            } catch (ConnectException refused) {
                client.close();
                Thread.sleep(100);
            }
        }
    }

    static void call(String host) throws Exception {
        InetSocketAddress server = new InetSocketAddress(host, PORT);
        List<Client> clients = new ArrayList<>();
        clients.add(first(server));
        while (clients.size() < COUNT) {
            clients.add(new Client(server, clients.size()));
        }
        for (Client client : clients) {
            client.connected();
        }
        for (Client client : clients) {
            client.echo();
        }
        long bytes = 0;
        for (Client client : clients) {
            bytes += client.bytes.length;
            client.close();
        }
        System.out.println(COUNT + " selectors, " + bytes + " bytes are right");
    }

    public static void main(String[] arguments) throws Exception {
        if (System.getenv("ISTHMUS_NODE_RANK").equals("1")) {
            serve();
        } else {
            call(System.getenv("ISTHMUS_NODE_LIST").split(",")[1]);
        }
    }
}
