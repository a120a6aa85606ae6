/* Connects that a handler of SIGALRM leaves by siglongjmp, as many clients end them after a time:
 * in whatever moment it comes, nothing stays open, and the next connects work. */
#include "same.h"
#include <setjmp.h>
#include <sys/time.h>

enum { TIMES = 60, GOOD = 5 };

static sigjmp_buf before;

static void leave(int signal)
{
	(void)signal;
	siglongjmp(before, 1);
}

static void after(long microseconds)
{
	struct itimerval time = {.it_value = {microseconds / 1000000, microseconds % 1000000}};
	setitimer(ITIMER_REAL, &time, NULL);
}

/* Whether the connect was left. */
static int left_after(long microseconds, struct sockaddr_in address)
{
	volatile int fd = tcp(0);
	if (sigsetjmp(before, 1)) {
		close(fd);
		return 1;
	}
	after(microseconds);
	go(fd, address);
	after(0);
	close(fd);
	return 0;
}

static int open_descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void left(void)
{
	int full = hear(), good = hear(), jumps = 0;
	struct sigaction action = {.sa_handler = leave};
	sigset_t mask;
	sigaction(SIGALRM, &action, NULL);
	know(good, "listener");
	int first = open_descriptors();
	for (int i = 0; i < 3; i++)
		jumps += left_after(PAUSE * 1000, at(peer, full));
	say("left while it waits: %d", jumps);
	for (int i = 0; i < TIMES; i++)
		left_after(50 + i * 50, at(peer, good));
	say("open beyond those before: %d", open_descriptors() - first);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	int blocked = 0;
	for (int signal = 1; signal < 32; signal++)
		blocked += sigismember(&mask, signal);
	say("signals blocked: %d", blocked);
	for (int i = 0; i < GOOD; i++) {
		int fd = tcp(0);
		step("connect", go(fd, at(peer, good)));
		talk("talks", fd);
		close(fd);
	}
	tell(0);
}

static void *answers(void *listening)
{
	char byte;
	for (int good = 0; good < GOOD;) {
		int fd = accept(*(int *)listening, NULL, NULL);
		if (fd >= 0 && recv(fd, &byte, 1, 0) == 1) {
			send(fd, "!", 1, MSG_NOSIGNAL);
			good++;
		}
		close(fd);
	}
	return NULL;
}

static void right(void)
{
	int filler, full = full_listener(&filler), good = listener(any(), 128, 0);
	pthread_t thread;
	pthread_create(&thread, NULL, answers, &good);
	tell(port_of(full));
	tell(port_of(good));
	hear();
	pthread_join(thread, NULL);
	close(full);
	close(filler);
}

BEHAVIOUR(jumps);
