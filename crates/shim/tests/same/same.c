/* same NAME left|right DIRECTORY OWN PEER OWN_NAME PEER_NAME: one part of a
 * behaviour. same --list: the names of all. */
#include "same.h"
#include <stdarg.h>

struct sockaddr_in own, peer;
const char *own_name, *peer_name;

static int to_other = -1, from_other = -1;
static const struct behaviour *self;

#define NAME(name) extern const struct behaviour name;
#include "behaviours.h"
#undef NAME
#define NAME(name) &name,
static const struct behaviour *const all[] = {
#include "behaviours.h"
};
#undef NAME

/* Room for the texts that a few calls in one line give. */
static char *room_for_text(void)
{
	static _Thread_local char texts[8][120];
	static _Thread_local unsigned next;
	return texts[next++ % 8];
}

void say(const char *format, ...)
{
	char line[512];
	va_list arguments;
	va_start(arguments, format);
	int len = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	line[len++] = '\n';
	/* At once and whole, whoever forks or ends. */
	if (write(1, line, len) != len)
		_exit(3);
}

const char *named(int error)
{
	return error ? strerrorname_np(error) : "ok";
}

int step(const char *what, int result)
{
	say("%s: %s", what, named(result < 0 ? errno : 0));
	return result;
}

void die(const char *what)
{
	say("cannot go on: %s: %s", what, named(errno));
	_exit(2);
}

void tell(int number)
{
	if (write(to_other, &number, sizeof number) != sizeof number)
		die("tell");
}

int hear(void)
{
	int number;
	if (read(from_other, &number, sizeof number) != sizeof number)
		die("hear");
	return number;
}

void meet(void)
{
	tell(0);
	hear();
}

static struct {
	int port;
	const char *name;
} known[64];

enum { KNOWN = sizeof known / sizeof *known };

void know(int port, const char *name)
{
	for (int i = 0; i < KNOWN; i++) {
		/* A number may come again for something else. */
		if (!known[i].name || known[i].port == port) {
			known[i].port = port;
			known[i].name = name;
			return;
		}
	}
}

static const char *called(int port)
{
	for (int i = 0; i < KNOWN && known[i].name; i++) {
		if (known[i].port == port)
			return known[i].name;
	}
	return port ? "some" : "0";
}

const char *who(const void *address, socklen_t len)
{
	struct sockaddr_storage name = {0};
	char *text = room_for_text();
	const char *mapped = "", *place = "OTHER";
	struct in_addr ip;
	memcpy(&name, address, len < sizeof name ? len : sizeof name);
	struct sockaddr_in *v4 = (struct sockaddr_in *)&name;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&name;
	if (name.ss_family == AF_INET) {
		ip = v4->sin_addr;
	} else if (name.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		mapped = "mapped ";
		memcpy(&ip, v6->sin6_addr.s6_addr + 12, 4);
	} else if (name.ss_family == AF_INET6) {
		place = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ? "ANY" : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ? "LOOPBACK" : "OTHER";
		snprintf(text, 120, "v6 %s:%s", place, called(ntohs(v6->sin6_port)));
		return text;
	} else {
		snprintf(text, 120, "family %d", name.ss_family);
		return text;
	}
	if (ip.s_addr == own.sin_addr.s_addr)
		place = "OWN";
	else if (ip.s_addr == peer.sin_addr.s_addr)
		place = "PEER";
	else if (ip.s_addr == htonl(INADDR_LOOPBACK))
		place = "LOOPBACK";
	else if (ip.s_addr == 0)
		place = "ANY";
	snprintf(text, 120, "%s%s:%s", mapped, place, called(ntohs(v4->sin_port)));
	return text;
}

static const char *name_of(int fd, int (*call)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage name;
	socklen_t len = sizeof name;
	if (call(fd, (struct sockaddr *)&name, &len))
		return named(errno);
	return who(&name, len);
}

const char *local(int fd)
{
	return name_of(fd, getsockname);
}

const char *remote(int fd)
{
	return name_of(fd, getpeername);
}

const char *events(int mask)
{
	static const struct {
		int bit;
		const char *name;
	} bits[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"}, {POLLOUT, "OUT"},	{POLLERR, "ERR"},
		    {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
	char *text = room_for_text();
	*text = 0;
	for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
		if (mask & bits[i].bit) {
			if (*text)
				strcat(text, " ");
			strcat(text, bits[i].name);
		}
	}
	return *text ? text : "none";
}

int tcp(int flags)
{
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
	if (fd < 0)
		die("socket");
	return fd;
}

struct sockaddr_in any(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET};
}

struct sockaddr_in at(struct sockaddr_in address, int port)
{
	address.sin_port = htons(port);
	return address;
}

int listener(struct sockaddr_in address, int backlog, int flags)
{
	int fd = tcp(flags);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, backlog))
		die("listen");
	know(port_of(fd), "listener");
	return fd;
}

int port_of(int fd)
{
	struct sockaddr_in6 name;
	socklen_t len = sizeof name;
	if (getsockname(fd, (struct sockaddr *)&name, &len))
		die("getsockname");
	return ntohs(name.sin6_port);
}

int full_listener(int *filler)
{
	int fd = listener(any(), 0, 0);
	*filler = fill(fd);
	return fd;
}

int fill(int listener)
{
	int filler = tcp(0);
	/* It has connected before it is in the queue: another one may still overtake it. */
	if (go(filler, at(own, port_of(listener))) || await(listener, POLLIN, PATIENCE) != POLLIN)
		die("filler");
	return filler;
}

void room(int listener)
{
	close(accept(listener, NULL, NULL));
}

int go(int fd, struct sockaddr_in address)
{
	return connect(fd, (struct sockaddr *)&address, sizeof address);
}

struct sockaddr_in outside(void)
{
	struct sockaddr_in address = at(any(), 9);
	address.sin_addr.s_addr = inet_addr("192.0.2.1");
	return address;
}

struct sockaddr_in interface(void)
{
	char line[256] = "", *end;
	struct sockaddr_in address = any();
	FILE *all = popen("env -u LD_PRELOAD ISTHMUS_SHIM=off hostname -I", "r");
	if (!all || !fgets(line, sizeof line, all))
		die("hostname");
	pclose(all);
	if ((end = strpbrk(line, " \n")))
		*end = 0;
	address.sin_addr.s_addr = inet_addr(line);
	return address;
}

int left_end(int flags)
{
	int fd = tcp(flags), port = hear();
	know(port, "listener");
	if (go(fd, at(peer, port)) && errno != EINPROGRESS)
		die("connect");
	if (flags & SOCK_NONBLOCK && !(await(fd, POLLOUT, PATIENCE) & POLLOUT))
		die("await");
	return fd;
}

int right_end(void)
{
	int listening = listener(any(), 8, 0);
	tell(port_of(listening));
	int fd = accept(listening, NULL, NULL);
	if (fd < 0)
		die("accept");
	close(listening);
	return fd;
}

int await(int fd, int wanted, int milliseconds)
{
	struct pollfd entry = {.fd = fd, .events = wanted};
	int n;
	do
		n = poll(&entry, 1, milliseconds);
	while (n < 0 && errno == EINTR);
	return n == 1 ? entry.revents : 0;
}

int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t len = sizeof value;
	return getsockopt(fd, level, name, &value, &len) ? -errno : value;
}

int so_error(int fd)
{
	return option(fd, SOL_SOCKET, SO_ERROR);
}

void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof value))
		die("setsockopt");
}

void blocking(int fd, int yes)
{
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, yes ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

void talk(const char *what, int fd)
{
	char byte = 0;
	ssize_t sent = send(fd, "?", 1, MSG_NOSIGNAL);
	int came = await(fd, POLLIN, PATIENCE);
	ssize_t got = came ? recv(fd, &byte, 1, 0) : -1;
	say("%s: sent %zd, answered %s", what, sent, got == 1 && byte == '!' ? "yes" : "no");
}

void answer(int fd)
{
	char byte = 0;
	int came = await(fd, POLLIN, PATIENCE);
	if (came && recv(fd, &byte, 1, 0) == 1 && byte == '?')
		send(fd, "!", 1, MSG_NOSIGNAL);
	else
		say("nobody asks");
}

double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

void pause_ms(int milliseconds)
{
	usleep(milliseconds * 1000);
}

void run_again(const char *first, int second)
{
	char number[16], a[INET_ADDRSTRLEN], b[INET_ADDRSTRLEN];
	snprintf(number, sizeof number, "%d", second);
	inet_ntop(AF_INET, &own.sin_addr, a, sizeof a);
	inet_ntop(AF_INET, &peer.sin_addr, b, sizeof b);
	execl("/proc/self/exe", "same", self->name, "again", "-", a, b, own_name, peer_name, first, number, NULL);
	_exit(127);
}

struct sockaddr_in6 mapped(struct sockaddr_in address)
{
	struct sockaddr_in6 out = {.sin6_family = AF_INET6, .sin6_port = address.sin_port};
	out.sin6_addr.s6_addr[10] = out.sin6_addr.s6_addr[11] = 0xff;
	memcpy(out.sin6_addr.s6_addr + 12, &address.sin_addr, 4);
	return out;
}

int go6(int fd, struct sockaddr_in6 address)
{
	return connect(fd, (struct sockaddr *)&address, sizeof address);
}

void give(int way, int fd)
{
	char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 'f';
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	if (sendmsg(way, &message, 0) != 1)
		die("give");
}

int take(int way)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	int fd = -1;
	if (recvmsg(way, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static int open_way(const char *directory, const char *name, const char *to, int flags)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s.to-%s", directory, name, to);
	int fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		die(path);
	/* Out of the way of what a behaviour does with low numbers. */
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	close(fd);
	return high;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			puts(all[i]->name);
		return 0;
	}
	if (argc < 8)
		return 2;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (!strcmp(all[i]->name, argv[1]))
			self = all[i];
	}
	if (!self)
		return 2;
	own.sin_family = peer.sin_family = AF_INET;
	own.sin_addr.s_addr = inet_addr(argv[4]);
	peer.sin_addr.s_addr = inet_addr(argv[5]);
	own_name = argv[6];
	peer_name = argv[7];
	alarm(40);
	if (!strcmp(argv[2], "again")) {
		self->again(argv + 8);
	} else if (!strcmp(argv[2], "left")) {
		to_other = open_way(argv[3], self->name, "right", O_WRONLY);
		from_other = open_way(argv[3], self->name, "left", O_RDONLY);
		self->left();
	} else {
		from_other = open_way(argv[3], self->name, "right", O_RDONLY);
		to_other = open_way(argv[3], self->name, "left", O_WRONLY);
		self->right();
	}
	return 0;
}
