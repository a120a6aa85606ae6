/* Host names and addresses by every call that turns one into the other. */
#include "same.h"
#include <sys/utsname.h>

static const char *word(const char *name)
{
	if (!name)
		return "none";
	return !strcasecmp(name, own_name) ? "OWN" : !strcasecmp(name, peer_name) ? "PEER" : name;
}

static const char *entry(struct hostent *found)
{
	struct sockaddr_in address = any();
	static char text[200];
	if (!found)
		return "nothing";
	memcpy(&address.sin_addr, found->h_addr_list[0], 4);
	snprintf(text, sizeof text, "%s is %s, family %d, length %d, more %d", word(found->h_name), who(&address, sizeof address),
		 found->h_addrtype, found->h_length, found->h_addr_list[1] != NULL);
	return text;
}

static void of(const char *what, const char *name, struct sockaddr_in address)
{
	struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM}, *found;
	char host[256], service[32], buffer[1024], shouted[256];
	struct hostent room, *result = NULL;
	int error = 0;
	say("-- %s", what);
	hints.ai_family = AF_INET;
	int status = getaddrinfo(name, "80", &hints, &found);
	say("getaddrinfo %d", status);
	if (!status) {
		know(80, "80");
		say("%s, canonical %s, more %d", who(found->ai_addr, found->ai_addrlen), word(found->ai_canonname), found->ai_next != NULL);
		freeaddrinfo(found);
	}
	hints.ai_flags = AI_NUMERICHOST;
	say("AI_NUMERICHOST: %s", gai_strerror(getaddrinfo(name, NULL, &hints, &found)));
	hints = (struct addrinfo){.ai_family = AF_INET6, .ai_flags = AI_V4MAPPED};
	status = getaddrinfo(name, NULL, &hints, &found);
	say("AI_V4MAPPED: %s", status ? gai_strerror(status) : who(found->ai_addr, found->ai_addrlen));
	if (!status)
		freeaddrinfo(found);
	snprintf(shouted, sizeof shouted, "%s", name);
	for (char *c = shouted; *c; c++)
		*c = *c >= 'a' && *c <= 'z' ? *c - 32 : *c;
	say("in capitals: %s", entry(gethostbyname(shouted)));
	say("gethostbyname: %s", entry(gethostbyname(name)));
	say("gethostbyname2: %s", entry(gethostbyname2(name, AF_INET)));
	status = gethostbyname_r(name, &room, buffer, sizeof buffer, &result, &error);
	say("gethostbyname_r %d: %s", status, entry(result));
	say("four bytes of room: %d", gethostbyname_r(name, &room, buffer, 4, &result, &error));
	status = gethostbyname2_r(name, AF_INET, &room, buffer, sizeof buffer, &result, &error);
	say("gethostbyname2_r %d: %s", status, entry(result));
	say("four bytes of room: %d", gethostbyname2_r(name, AF_INET, &room, buffer, 4, &result, &error));
	status = gethostbyaddr_r(&address.sin_addr, 4, AF_INET, &room, buffer, sizeof buffer, &result, &error);
	say("gethostbyaddr_r %d: %s", status, entry(result));
	say("four bytes of room: %d", gethostbyaddr_r(&address.sin_addr, 4, AF_INET, &room, buffer, 4, &result, &error));
	say("gethostbyaddr: %s", entry(gethostbyaddr(&address.sin_addr, 4, AF_INET)));
	address.sin_port = htons(80);
	status = getnameinfo((struct sockaddr *)&address, sizeof address, host, sizeof host, service, sizeof service,
			     NI_NAMEREQD | NI_NUMERICSERV);
	say("getnameinfo %d: %s, %s", status, word(host), service);
	status = getnameinfo((struct sockaddr *)&address, sizeof address, host, 3, NULL, 0, 0);
	say("three bytes of room: %s", gai_strerror(status));
	status = getnameinfo((struct sockaddr *)&address, sizeof address, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	struct sockaddr_in back = any();
	inet_pton(AF_INET, host, &back.sin_addr);
	say("in numbers %d: %s", status, who(&back, sizeof back));
}

static void left(void)
{
	char name[256], shorter[4];
	struct utsname uts;
	struct addrinfo *found;
	gethostname(name, sizeof name);
	uname(&uts);
	say("gethostname %s, uname %s", word(name), word(uts.nodename));
	step("four bytes of room", gethostname(shorter, sizeof shorter));
	of("own", own_name, own);
	of("peer", peer_name, peer);
	int status = getaddrinfo(NULL, "80", NULL, &found);
	say("nobody: %s", status ? gai_strerror(status) : "ok");
	say("neither: %s", gai_strerror(getaddrinfo(NULL, NULL, NULL, &found)));
	say("localhost: %d", gethostbyname("localhost") != NULL);
	say("loopback: %s", entry(gethostbyname("127.0.0.1")) != NULL ? "found" : "nothing");
}

static void right(void)
{
}

BEHAVIOUR(names);
