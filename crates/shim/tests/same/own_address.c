/* The node's own address: every way to find it gives the same one, which is good for
 * listeners and for clients. docs/beyond-mpi.md has the table. */
#include "same.h"
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/utsname.h>

static struct sockaddr_in found;

static const char *place(const void *ip)
{
	struct sockaddr_in address = any();
	memcpy(&address.sin_addr, ip, sizeof address.sin_addr);
	return who(&address, sizeof address);
}

/* Addresses but those of loopback, each once. */
static struct {
	in_addr_t all[16];
	int count;
} seen;

static void see(const void *ip)
{
	in_addr_t address;
	memcpy(&address, ip, sizeof address);
	for (int i = 0; i < seen.count; i++) {
		if (seen.all[i] == address)
			return;
	}
	if (ntohl(address) >> 24 != IN_LOOPBACKNET && seen.count < 16)
		seen.all[seen.count++] = address;
}

static void tell_seen(const char *what)
{
	say("%s: %d, %s", what, seen.count, seen.count ? place(&seen.all[0]) : "none");
	seen.count = 0;
}

static void by_connect(void)
{
	socklen_t len = sizeof found;
	int fd = socket(AF_INET, SOCK_DGRAM, 0), stream = tcp(SOCK_NONBLOCK);
	step("connect a datagram socket", go(fd, outside()));
	getsockname(fd, (struct sockaddr *)&found, &len);
	found.sin_port = 0;
	say("it is at %s", place(&found.sin_addr));
	close(fd);
	step("connect a stream", go(stream, outside()));
	struct sockaddr_in address;
	len = sizeof address;
	getsockname(stream, (struct sockaddr *)&address, &len);
	say("it is at %s", place(&address.sin_addr));
	close(stream);
}

static void by_name(void)
{
	char name[256] = "";
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list;
	struct utsname uts;
	gethostname(name, sizeof name);
	struct hostent *entry = gethostbyname(name);
	say("gethostbyname of gethostname: %s", entry ? place(entry->h_addr_list[0]) : "none");
	uname(&uts);
	if (!getaddrinfo(uts.nodename, NULL, &hints, &list)) {
		say("getaddrinfo of uname: %s", place(&((struct sockaddr_in *)list->ai_addr)->sin_addr));
		freeaddrinfo(list);
	}
}

static void by_interface(void)
{
	struct ifaddrs *list;
	char name[IFNAMSIZ] = "";
	if (getifaddrs(&list))
		die("getifaddrs");
	for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		if (!entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET || entry->ifa_flags & IFF_LOOPBACK)
			continue;
		see(&((struct sockaddr_in *)entry->ifa_addr)->sin_addr);
		snprintf(name, sizeof name, "%s", entry->ifa_name);
	}
	freeifaddrs(list);
	tell_seen("getifaddrs");
	struct ifreq one = {0};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	static const unsigned long requests[] = {SIOCGIFADDR, SIOCGIFDSTADDR};
	for (int i = 0; i < 2; i++) {
		snprintf(one.ifr_name, sizeof one.ifr_name, "%s", name);
		step(i ? "SIOCGIFDSTADDR" : "SIOCGIFADDR", ioctl(fd, requests[i], &one));
		say("%s", place(&((struct sockaddr_in *)&one.ifr_addr)->sin_addr));
	}
	close(fd);
}

/* Receives by each call that can. */
static ssize_t received(int fd, int way, void *buffer, size_t len)
{
	struct sockaddr_nl from;
	socklen_t room = sizeof from;
	struct iovec part = {buffer, len};
	struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
	if (way == 0)
		return recv(fd, buffer, len, 0);
	if (way == 1)
		return recvfrom(fd, buffer, len, 0, (struct sockaddr *)&from, &room);
	/* As iproute2 does: how long is it? */
	ssize_t size = recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC);
	message.msg_namelen = sizeof from;
	return size < 0 ? size : recvmsg(fd, &message, 0);
}

/* Reads answers until the last one; gives the number of messages of the kind asked for. */
static int answers(int fd, int way, int kind, void (*take)(struct nlmsghdr *))
{
	static _Alignas(8) char buffer[32768];
	int count = 0;
	for (;;) {
		ssize_t len = received(fd, way, buffer, sizeof buffer);
		if (len <= 0)
			die("netlink");
		for (struct nlmsghdr *one = (void *)buffer; NLMSG_OK(one, len); one = NLMSG_NEXT(one, len)) {
			if (one->nlmsg_type == NLMSG_DONE || one->nlmsg_type == NLMSG_ERROR)
				return count;
			if (one->nlmsg_type == kind) {
				count++;
				take(one);
			}
			if (!(one->nlmsg_flags & NLM_F_MULTI))
				return count;
		}
	}
}

static void take_address(struct nlmsghdr *message)
{
	struct ifaddrmsg *body = NLMSG_DATA(message);
	int len = IFA_PAYLOAD(message);
	for (struct rtattr *one = IFA_RTA(body); RTA_OK(one, len); one = RTA_NEXT(one, len)) {
		if (body->ifa_family == AF_INET && one->rta_type == IFA_LOCAL)
			see(RTA_DATA(one));
	}
}

static void take_route(struct nlmsghdr *message)
{
	struct rtmsg *body = NLMSG_DATA(message);
	int len = RTM_PAYLOAD(message);
	for (struct rtattr *one = RTM_RTA(body); RTA_OK(one, len); one = RTA_NEXT(one, len)) {
		if (one->rta_type == RTA_PREFSRC)
			see(RTA_DATA(one));
	}
}

static void take_own(struct nlmsghdr *message)
{
	struct rtmsg *body = NLMSG_DATA(message);
	int len = RTM_PAYLOAD(message);
	for (struct rtattr *one = RTM_RTA(body); RTA_OK(one, len); one = RTA_NEXT(one, len)) {
		if (body->rtm_type == RTN_LOCAL && one->rta_type == RTA_DST)
			see(RTA_DATA(one));
	}
}

static void by_netlink(void)
{
	struct {
		struct nlmsghdr head;
		struct ifaddrmsg body;
	} addresses = {{sizeof addresses, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {.ifa_family = AF_INET}};
	struct {
		struct nlmsghdr head;
		struct rtmsg body;
		struct rtattr attribute;
		struct in_addr to;
	} route = {{sizeof route, RTM_GETROUTE, NLM_F_REQUEST, 2, 0},
		   {.rtm_family = AF_INET, .rtm_dst_len = 32},
		   {RTA_LENGTH(4), RTA_DST},
		   outside().sin_addr};
	struct {
		struct nlmsghdr head;
		struct rtmsg body;
	} routes = {{sizeof routes, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 3, 0}, {.rtm_family = AF_INET}};
	for (int way = 0; way < 3; way++) {
		int first = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), fd = dup(first);
		close(first);
		if (send(fd, &addresses, sizeof addresses, 0) < 0)
			die("ask for addresses");
		say("addresses: %d", answers(fd, way, RTM_NEWADDR, take_address));
		tell_seen("netlink's addresses");
		if (send(fd, &route, sizeof route, 0) < 0)
			die("ask for a route");
		say("routes: %d", answers(fd, way, RTM_NEWROUTE, take_route));
		tell_seen("the source of a route");
		if (send(fd, &routes, sizeof routes, 0) < 0)
			die("ask for routes");
		say("routes: %s", answers(fd, way, RTM_NEWROUTE, take_own) > 0 ? "some" : "none");
		tell_seen("destinations within the node");
		close(fd);
	}
}

/* As scripts do: the line before each "/32 host". */
static void by_trie(const char *what, FILE *file)
{
	char line[256], before[256] = "";
	struct in_addr ip;
	if (!file)
		die(what);
	while (fgets(line, sizeof line, file)) {
		if (strstr(line, "/32 host LOCAL") && inet_pton(AF_INET, before, &ip) == 1)
			see(&ip);
		if (sscanf(line, " |-- %255s", before) != 1)
			*before = 0;
	}
	fclose(file);
	tell_seen(what);
}

static void by_proc(void)
{
	char line[256];
	int loopback = 0, global = 0, scope;
	by_trie("fib_trie by fopen", fopen("/proc/net/fib_trie", "r"));
	by_trie("fib_trie by open", fdopen(open("/proc/self/net/fib_trie", O_RDONLY | O_CLOEXEC), "r"));
	by_trie("fib_trie by openat", fdopen(openat(AT_FDCWD, "/proc/net/fib_trie", O_RDONLY), "r"));
	by_trie("fib_trie by a child", popen("cat /proc/net/fib_trie", "r"));
	FILE *file = fopen("/proc/net/if_inet6", "re");
	while (file && fgets(line, sizeof line, file)) {
		if (strstr(line, " lo\n"))
			loopback++;
		else if (sscanf(line, "%*s %*s %*s %x", &scope) == 1 && scope == 0)
			global++;
	}
	say("if_inet6: loopback %d, global %d", loopback, global);
	step("no file", fopen("/proc/net/none", "r") ? 0 : -1);
	step("to write", open("/proc/net/fib_trie", O_WRONLY));
}

/* Listeners at the address found, at that of the interface, and anywhere: the other node is told
 * the first one. */
static void serves(void)
{
	int ports[3], listening[3];
	struct sockaddr_in address[] = {found, interface(), any()};
	for (int i = 0; i < 3; i++) {
		listening[i] = listener(address[i], 4, 0);
		say("listens at %s", local(listening[i]));
		ports[i] = port_of(listening[i]);
	}
	tell((int)found.sin_addr.s_addr);
	for (int i = 0; i < 3; i++) {
		tell(ports[i]);
		int fd = accept(listening[i], NULL, NULL);
		say("serves at %s", local(fd));
		answer(fd);
		close(fd);
		close(listening[i]);
	}
}

/* Sockets that are bound to the address found reach what is no node, too. */
static void leaves(void)
{
	struct in_addr group = {inet_addr("224.0.0.251")};
	struct ip_mreq member = {group, found.sin_addr};
	for (int way = 0; way < 3; way++) {
		int fd = way ? socket(AF_INET, SOCK_DGRAM, 0) : tcp(SOCK_NONBLOCK);
		set(fd, IPPROTO_IP, IP_TTL, 7);
		step("bind", bind(fd, (struct sockaddr *)&found, sizeof found));
		int port = port_of(fd);
		know(port, "bound");
		say("%s", local(fd));
		struct sockaddr_in to = outside();
		if (way == 1)
			step("send outside", sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1 ? 0 : -1);
		else
			step("connect outside", go(fd, to));
		say("%s, TTL %d", local(fd), option(fd, IPPROTO_IP, IP_TTL));
		close(fd);
	}
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	step("IP_MULTICAST_IF", setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &found.sin_addr, sizeof found.sin_addr));
	step("IP_ADD_MEMBERSHIP", setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member));
	step("IP_DROP_MEMBERSHIP", setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &member, sizeof member));
	close(fd);
}

static void left(void)
{
	by_connect();
	by_name();
	by_interface();
	by_netlink();
	by_proc();
	leaves();
	serves();
}

static void right(void)
{
	struct sockaddr_in told = any();
	told.sin_addr.s_addr = (in_addr_t)hear();
	say("told %s", place(&told.sin_addr));
	for (int i = 0; i < 3; i++) {
		int port = hear(), fd = tcp(0);
		know(port, "listener");
		step("connect to what was told", go(fd, at(told, port)));
		say("%s, %s", local(fd), remote(fd));
		talk("talks", fd);
		close(fd);
	}
}

BEHAVIOUR(own_address);
