/* sandboxed PORT [kill]: under `isthmus run --each`, on the first node a server that lets itself make
 * only the system calls that it needs (seccomp), as memcached and OpenSSH's children do. All others
 * fail, or end it if "kill" is given. On the second node a client. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS = 3 };

static int serve(int port, int kills)
{
	int one = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)}, peer;
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listening, (void *)&address, sizeof address) || listen(listening, 8))
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 4096);
	puts("listens");
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(accept), ALLOW(read), ALLOW(write), ALLOW(close), ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM)};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 1;
	for (int i = 0; i < CALLS; i++) {
		char bytes[8] = {0};
		socklen_t len = sizeof peer;
		int fd = accept(listening, (void *)&peer, &len);
		ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
		printf("served %zd bytes: %s\n", got, bytes);
		if (got <= 0 || write(fd, "re", 2) != 2 || close(fd))
			return 1;
	}
	/* As children of servers end. */
	fflush(stdout);
	_exit(0);
}

static int call(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	if (getaddrinfo(host, port, &hints, &found))
		return 1;
	for (int i = 0; i < CALLS;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		char bytes[8] = {0};
		if (!connect(fd, found->ai_addr, found->ai_addrlen)) {
			ssize_t got = write(fd, "hi", 2) == 2 ? read(fd, bytes, sizeof bytes - 1) : -1;
			printf("got %zd bytes: %s\n", got, bytes);
			fflush(stdout);
			i++;
		} else if (errno == ECONNREFUSED) {
			usleep(100000); /* The listener isn't there yet. */
		} else {
			return 1;
		}
		close(fd);
	}
	return 0;
}

int main(int count, char **words)
{
	char first[256];
	snprintf(first, sizeof first, "%s", getenv("ISTHMUS_HEAD"));
	alarm(150);
	if (!strcmp(getenv("ISTHMUS_NODE_RANK"), "0"))
		return serve(atoi(words[1]), count > 2);
	return call(first, words[1]);
}
