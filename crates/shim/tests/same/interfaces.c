/* Network interfaces by every call that lists them. */
#include "same.h"
#include <ifaddrs.h>
#include <net/if.h>

static void left(void)
{
	struct ifaddrs *list, *mine = NULL;
	int others = 0, loopbacks = 0, unnamed = 0;
	char name[IFNAMSIZ] = "";
	step("getifaddrs", getifaddrs(&list));
	for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		unnamed += !entry->ifa_name;
		if (!entry->ifa_addr || entry->ifa_addr->sa_family != AF_INET)
			continue;
		if (entry->ifa_flags & IFF_LOOPBACK)
			loopbacks++;
		else if (((struct sockaddr_in *)entry->ifa_addr)->sin_addr.s_addr == own.sin_addr.s_addr)
			mine = entry;
		else
			others++;
	}
	say("mine %d, loopback %d, others %d, without a name %d", mine != NULL, loopbacks, others, unnamed);
	if (!mine)
		die("no interface");
	snprintf(name, sizeof name, "%s", mine->ifa_name);
	say("up %d, running %d, broadcast %d, loopback %d, point to point %d", !!(mine->ifa_flags & IFF_UP),
	    !!(mine->ifa_flags & IFF_RUNNING), !!(mine->ifa_flags & IFF_BROADCAST), !!(mine->ifa_flags & IFF_LOOPBACK),
	    !!(mine->ifa_flags & IFF_POINTOPOINT));
	in_addr_t mask = ((struct sockaddr_in *)mine->ifa_netmask)->sin_addr.s_addr;
	say("netmask %d, broadcast address %d", mask != 0, mine->ifa_ifu.ifu_broadaddr != NULL);
	freeifaddrs(list);

	struct ifreq entries[8] = {0}, one = {0};
	struct ifconf query = {.ifc_len = sizeof entries, .ifc_req = entries};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), found = 0, count;
	step("SIOCGIFCONF", ioctl(fd, SIOCGIFCONF, &query));
	count = query.ifc_len / (int)sizeof *entries;
	for (int i = 0; i < count; i++)
		found += !strcmp(entries[i].ifr_name, name) && strstr(who(&entries[i].ifr_addr, sizeof(struct sockaddr_in)), "OWN");
	say("%d entries, mine %d", count, found);
	query = (struct ifconf){.ifc_len = sizeof *entries + 3, .ifc_req = entries};
	step("room for one", ioctl(fd, SIOCGIFCONF, &query));
	say("%d entries", query.ifc_len / (int)sizeof *entries);
	query = (struct ifconf){0};
	step("no room", ioctl(fd, SIOCGIFCONF, &query));
	say("%d entries", query.ifc_len / (int)sizeof *entries);

	static const struct {
		const char *name;
		unsigned long request;
	} requests[] = {{"SIOCGIFADDR", SIOCGIFADDR}, {"SIOCGIFNETMASK", SIOCGIFNETMASK}, {"SIOCGIFBRDADDR", SIOCGIFBRDADDR},
			{"SIOCGIFFLAGS", SIOCGIFFLAGS}, {"SIOCGIFINDEX", SIOCGIFINDEX}, {"SIOCGIFMTU", SIOCGIFMTU},
			{"SIOCGIFHWADDR", SIOCGIFHWADDR}};
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
		snprintf(one.ifr_name, sizeof one.ifr_name, "%s", name);
		step(requests[i].name, ioctl(fd, requests[i].request, &one));
		if (requests[i].request == SIOCGIFADDR)
			say("%s", who(&one.ifr_addr, sizeof(struct sockaddr_in)));
		if (requests[i].request == SIOCGIFNETMASK)
			say("the same netmask %d", ((struct sockaddr_in *)&one.ifr_addr)->sin_addr.s_addr == mask);
		snprintf(one.ifr_name, sizeof one.ifr_name, "none0");
		step("of none0", ioctl(fd, requests[i].request, &one));
	}
	snprintf(one.ifr_name, sizeof one.ifr_name, "lo");
	step("SIOCGIFADDR of lo", ioctl(fd, SIOCGIFADDR, &one));
	say("%s", who(&one.ifr_addr, sizeof(struct sockaddr_in)));
	step("no descriptor", ioctl(-1, SIOCGIFADDR, &one));
	step("no argument", ioctl(fd, SIOCGIFADDR, NULL));
	say("index %d, name %d", if_nametoindex(name) > 0, if_indextoname(if_nametoindex(name), one.ifr_name) != NULL);
}

static void right(void)
{
}

BEHAVIOUR(interfaces);
