/* names HOST PORT MY_ADDRESS: who is who, by every call that tells. HOST has a
 * server (server.c); MY_ADDRESS is the address this node is known by there. */
#define _GNU_SOURCE
#include "probe.h"
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static struct sockaddr_in server;
static const char *mine;

static void text(struct sockaddr_in *name, char *out, size_t room)
{
	char host[INET_ADDRSTRLEN];
	inet_ntop(AF_INET, &name->sin_addr, host, sizeof host);
	snprintf(out, room, "%s %d", host, ntohs(name->sin_port));
}

static void ends(int fd, char *peer, char *local, size_t room)
{
	struct sockaddr_in name = {0};
	socklen_t len = sizeof name;
	*peer = *local = 0;
	if (!getpeername(fd, (struct sockaddr *)&name, &len))
		text(&name, peer, room);
	len = sizeof name;
	if (!getsockname(fd, (struct sockaddr *)&name, &len))
		text(&name, local, room);
}

/* What both ends say of a connection, and what others say who got it. */
static void connection(const char *what, int fd, char **argv)
{
	char peer[80], local[80], wanted[80], answer[300], seen[300], named[120];
	text(&server, wanted, sizeof wanted);
	ends(fd, peer, local, sizeof peer);
	snprintf(named, sizeof named, "%s: getpeername", what);
	check(named, !strcmp(peer, wanted), "%s, wanted %s", peer, wanted);
	snprintf(named, sizeof named, "%s: getsockname", what);
	check(named, !strncmp(local, mine, strlen(mine)) && local[strlen(mine)] == ' ', "%s", local);
	int ok = converse(fd, "who\n", answer, sizeof answer);
	snprintf(seen, sizeof seen, "accepted %s peer %s local %s flags 0 nodelay 1\n", local, local, wanted);
	snprintf(named, sizeof named, "%s: the other end agrees", what);
	check(named, ok && !strcmp(answer, seen), "%s instead of %s", answer, seen);
	pid_t child = fork();
	if (!child) {
		char number[16];
		snprintf(number, sizeof number, "%d", fd);
		char *const arguments[] = {argv[0], "inherited", number, peer, local, NULL};
		execv("/proc/self/exe", arguments);
		_exit(3);
	}
	int status = -1;
	waitpid(child, &status, 0);
	snprintf(named, sizeof named, "%s: known to a program it is inherited by", what);
	check(named, status == 0, "status %x", status);
}

static int inherited(char **argv)
{
	char peer[80], local[80];
	ends(atoi(argv[2]), peer, local, sizeof peer);
	return strcmp(peer, argv[3]) || strcmp(local, argv[4]);
}

static void connections(char **argv)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int error = connect_to(fd, server);
	check("connects", error == 0, "error %d", error);
	connection("unbound", fd, argv);
	close(fd);

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect_to(fd, server);
	check("connects without waiting", await(fd, POLLOUT) == POLLOUT, "not");
	connection("non-blocking", fd, argv);
	close(fd);

	struct sockaddr_in own = resolve(mine, 0), name;
	socklen_t len = sizeof name;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	check("binds to its address", bind(fd, (struct sockaddr *)&own, sizeof own) == 0, "errno %d", errno);
	getsockname(fd, (struct sockaddr *)&name, &len);
	check("and is called so", name.sin_addr.s_addr == own.sin_addr.s_addr && name.sin_port != 0, "%s",
	      inet_ntoa(name.sin_addr));
	int port = name.sin_port;
	error = connect_to(fd, server);
	len = sizeof name;
	getsockname(fd, (struct sockaddr *)&name, &len);
	check("the port stays over connect", error == 0 && name.sin_port == port, "error %d port %d for %d", error,
	      ntohs(name.sin_port), ntohs(port));
	connection("bound", fd, argv);
	close(fd);
}

static void own_node(char **argv)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, name;
	struct sockaddr_in saved = server;
	socklen_t len = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&any, sizeof any);
	listen(listener, 8);
	getsockname(listener, (struct sockaddr *)&name, &len);
	check("a listener on every address is called so", name.sin_addr.s_addr == 0 && name.sin_port, "%s",
	      inet_ntoa(name.sin_addr));
	server = resolve(mine, ntohs(name.sin_port));
	for (int loopback = 0; loopback < 2; loopback++) {
		struct sockaddr_in target = server, from = {0};
		char peer[80], local[80], other_peer[80], other_local[80];
		if (loopback)
			target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		int error = connect_to(fd, target);
		len = sizeof from;
		int accepted = accept(listener, (struct sockaddr *)&from, &len);
		ends(fd, peer, local, sizeof peer);
		ends(accepted, other_peer, other_local, sizeof peer);
		char seen[80], wanted[80], host[80];
		text(&from, seen, sizeof seen);
		text(&target, wanted, sizeof wanted);
		snprintf(host, sizeof host, "%s ", loopback ? "127.0.0.1" : mine);
		check(loopback ? "localhost" : "the node's own address",
		      error == 0 && !strcmp(peer, wanted) && !strcmp(other_peer, local) && !strcmp(other_local, peer) &&
			      !strcmp(seen, local) && !strncmp(local, host, strlen(host)),
		      "error %d: %s -> %s, other side %s -> %s, accept %s", error, local, peer, other_peer, other_local,
		      seen);
		close(fd);
		close(accepted);
	}
	close(listener);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int error = connect_to(fd, server);
	check("the node's own address, refused", error == ECONNREFUSED, "error %d", error);
	close(fd);
	server = saved;
	(void)argv;
}

static void interfaces(void)
{
	struct ifaddrs *list;
	int found = 0, others = 0;
	char name[IFNAMSIZ] = "";
	if (getifaddrs(&list))
		die("getifaddrs");
	for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		if (!entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET || entry->ifa_flags & IFF_LOOPBACK)
			continue;
		if (((struct sockaddr_in *)entry->ifa_addr)->sin_addr.s_addr == inet_addr(mine)) {
			snprintf(name, sizeof name, "%s", entry->ifa_name);
			found += entry->ifa_flags & IFF_UP && entry->ifa_netmask;
		} else {
			others++;
		}
	}
	freeifaddrs(list);
	check("getifaddrs has the address and no other", found == 1 && others == 0, "%d and %d others", found, others);

	struct ifreq entries[64], one = {0};
	struct ifconf query = {.ifc_len = sizeof entries, .ifc_req = entries};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	found = others = 0;
	if (ioctl(fd, SIOCGIFCONF, &query))
		die("SIOCGIFCONF");
	for (int i = 0; i < query.ifc_len / (int)sizeof *entries; i++) {
		struct in_addr address = ((struct sockaddr_in *)&entries[i].ifr_addr)->sin_addr;
		found += address.s_addr == inet_addr(mine) && !strcmp(entries[i].ifr_name, name);
		others += address.s_addr != inet_addr(mine) && address.s_addr != htonl(INADDR_LOOPBACK);
	}
	check("SIOCGIFCONF has the address and no other", found == 1 && others == 0, "%d and %d others", found, others);
	int whole = query.ifc_len;
	query = (struct ifconf){0};
	ioctl(fd, SIOCGIFCONF, &query);
	check("SIOCGIFCONF says how much there is", query.ifc_len == whole, "%d of %d", query.ifc_len, whole);
	snprintf(one.ifr_name, sizeof one.ifr_name, "%s", name);
	int error = ioctl(fd, SIOCGIFADDR, &one) ? errno : 0;
	check("SIOCGIFADDR", error == 0 && ((struct sockaddr_in *)&one.ifr_addr)->sin_addr.s_addr == inet_addr(mine),
	      "error %d", error);
	snprintf(one.ifr_name, sizeof one.ifr_name, "lo");
	error = ioctl(fd, SIOCGIFADDR, &one) ? errno : 0;
	check("SIOCGIFADDR of loopback",
	      error == 0 && ((struct sockaddr_in *)&one.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK), "error %d",
	      error);
	snprintf(one.ifr_name, sizeof one.ifr_name, "none0");
	error = ioctl(fd, SIOCGIFADDR, &one) ? errno : 0;
	check("SIOCGIFADDR of nothing", error == ENODEV, "error %d", error);
	check("ioctl of a closed descriptor", ioctl(-1, SIOCGIFADDR, &one) && errno == EBADF, "errno %d", errno);
	close(fd);
}

static void host_name(void)
{
	char name[256], shorter[3], buffer[1024], host[256];
	struct utsname uts;
	gethostname(name, sizeof name);
	uname(&uts);
	check("gethostname and uname agree", !strcmp(name, uts.nodename), "%s and %s", name, uts.nodename);
	check("gethostname into too little room", gethostname(shorter, sizeof shorter) && errno == ENAMETOOLONG, "errno %d",
	      errno);
	struct sockaddr_in own = resolve(name, 0);
	check("getaddrinfo of the own name", own.sin_addr.s_addr == inet_addr(mine), "%s", inet_ntoa(own.sin_addr));
	in_addr_t number = inet_addr(mine);
	int has_own = access("/etc/hostid", F_OK) == 0;
	check("gethostid is that of the own address", has_own || gethostid() == (int)(number << 16 | number >> 16), "%lx",
	      gethostid());
	struct hostent *entry = gethostbyname(name);
	check("gethostbyname of the own name",
	      entry && entry->h_addrtype == AF_INET && *(in_addr_t *)entry->h_addr_list[0] == inet_addr(mine) &&
		      !strcasecmp(entry->h_name, name),
	      "%s", entry ? entry->h_name : "nothing");
	struct hostent room, *result = NULL;
	int error = 0, status = gethostbyname_r(name, &room, buffer, sizeof buffer, &result, &error);
	check("gethostbyname_r of the own name",
	      status == 0 && result == &room && *(in_addr_t *)room.h_addr_list[0] == inet_addr(mine), "status %d", status);
	status = gethostbyname_r(name, &room, buffer, 4, &result, &error);
	check("gethostbyname_r into too little room", status == ERANGE, "status %d", status);
	in_addr_t address = inet_addr(mine);
	entry = gethostbyaddr(&address, sizeof address, AF_INET);
	check("gethostbyaddr of the own address", entry && !strcasecmp(entry->h_name, name), "%s",
	      entry ? entry->h_name : "nothing");
	own.sin_port = htons(80);
	status = getnameinfo((struct sockaddr *)&own, sizeof own, host, sizeof host, NULL, 0, NI_NAMEREQD);
	check("getnameinfo of the own address", status == 0 && !strcasecmp(host, name), "%d %s", status, host);
	status = getnameinfo((struct sockaddr *)&own, sizeof own, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	check("getnameinfo in numbers", status == 0 && !strcmp(host, mine), "%d %s", status, host);
	struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_family = AF_INET}, *found;
	status = getaddrinfo(name, "80", &hints, &found);
	check("getaddrinfo's canonical name", status == 0 && !strcasecmp(found->ai_canonname, name), "%d", status);
	if (!status)
		freeaddrinfo(found);
	hints.ai_flags = AI_NUMERICHOST;
	check("getaddrinfo told to resolve no names", getaddrinfo(name, NULL, &hints, &found) == EAI_NONAME, "did");
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "inherited"))
		return inherited(argv);
	if (argc != 4)
		return 2;
	server = resolve(argv[1], atoi(argv[2]));
	mine = argv[3];
	alarm(60);
	connections(argv);
	own_node(argv);
	interfaces();
	host_name();
	return conclude();
}
