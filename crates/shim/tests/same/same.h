/* What the behaviours share.
 *
 * A behaviour is an ordinary program in two parts, LEFT and RIGHT, on two
 * nodes. It prints what it sees, with addresses and ports in words, and is run
 * twice, without isthmus and under it: the lines must be the same. To add one:
 * a file with LEFT and RIGHT, and its name in behaviours.h. */
#ifndef SAME_H
#define SAME_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* One behaviour; `again` is what the program does when it runs itself anew. */
struct behaviour {
	const char *name;
	void (*left)(void);
	void (*right)(void);
	void (*again)(char **arguments);
};

#define BEHAVIOUR(name) const struct behaviour name = {#name, left, right, NULL}
#define BEHAVIOUR_WITH(name, again) const struct behaviour name = {#name, left, right, again}

/* How long to wait for what must come, and for what must not, milliseconds. */
enum { PATIENCE = 10000, PAUSE = 150 };

/* This node and the other: addresses without a port, and host names. */
extern struct sockaddr_in own, peer;
extern const char *own_name, *peer_name;

/* Prints a line. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
/* Prints what a call gave: ok, or the name of its errno. */
int step(const char *what, int result);
/* Ends the program: what it needs can't be had. */
__attribute__((noreturn)) void die(const char *what);

/* To and from the other part, out of band; hear() waits. */
void tell(int number);
int hear(void);
/* Waits until both are here. */
void meet(void);

/* A socket address in words: OWN, PEER, LOOPBACK, ANY or OTHER, and its port:
 * 0, what know() called it, or "some". */
const char *who(const void *address, socklen_t len);
void know(int port, const char *name);
/* What getsockname or getpeername says. */
const char *local(int fd);
const char *remote(int fd);
/* Events of poll, and of epoll, in words. */
const char *events(int mask);
/* The name of an errno, 0 is "ok". */
const char *named(int error);

int tcp(int flags);
/* A listener and its port. */
int listener(struct sockaddr_in address, int backlog, int flags);
struct sockaddr_in any(void);
struct sockaddr_in at(struct sockaddr_in address, int port);
int port_of(int fd);
/* A listener whose queue is full until room() makes room; not for connects
 * that come from elsewhere before. */
int full_listener(int *filler);
/* Fills its queue again, after room() and an accept. The other part may connect
 * only once it was told: its connection would be the one to fill the queue. */
int fill(int listener);
void room(int listener);
int go(int fd, struct sockaddr_in address);
/* An address that no network has (RFC 5737): its port says that nothing is meant. */
struct sockaddr_in outside(void);
/* The address of this node's interface in its own network, whatever programs see. */
struct sockaddr_in interface(void);
/* A connected pair: LEFT connects, RIGHT accepts. */
int left_end(int flags);
int right_end(void);

/* Waits for events; 0 if none came in time. */
int await(int fd, int wanted, int milliseconds);
int so_error(int fd);
int option(int fd, int level, int name);
void set(int fd, int level, int name, int value);
void blocking(int fd, int yes);
/* Whether bytes go both ways: the one says, the other answers. */
void talk(const char *what, int fd);
void answer(int fd);
double now_ms(void);
void pause_ms(int milliseconds);
/* The same as an IPv6 address, and a connect to it. */
struct sockaddr_in6 mapped(struct sockaddr_in address);
int go6(int fd, struct sockaddr_in6 address);
/* To and from another process, or this one, over a Unix socket. */
void give(int way, int fd);
int take(int way);
/* Runs this program anew, in this process, as its `again` part. */
void run_again(const char *first, int second);

#endif
