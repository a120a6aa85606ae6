/* old_kernel PROGRAM ARGUMENT...: runs a program as if Linux 4.18 did, as far as a filter can tell
 * (seccomp): system calls and options of sockets that later kernels brought are not there, for the
 * program and all that it starts. What files below /proc and /sys say, and what structures of the
 * kernel hold, stays. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The newest of Linux 4.18. */
#ifdef __x86_64__
enum { LAST_CALL = 334 /* rseq */ };
#else
enum { LAST_CALL = 293 /* rseq */ };
#endif
enum {
	LAST_OF_SOCKETS = 60, /* SO_ZEROCOPY */
	LAST_OF_TCP = 36, /* TCP_CM_INQ */
	LAST_OF_IP = 50, /* IP_UNICAST_IF */
	LAST_OF_PROCESSES = 53, /* PR_SET_SPECULATION_CTRL */
	MAGIC_OF_PROCESSES = 0x1000, /* PR_SET_PTRACER and others are large numbers */
	FLAGS_OF_MEMORY = 7, /* MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB */
	FLAGS_OF_FILTERS = 7, /* SECCOMP_FILTER_FLAG_TSYNC, _LOG, _SPEC_ALLOW */
};

/* The lower half: all machines that this runs on are little endian. */
#define ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + (n) * 8)
#define CALL BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
/* The next N instructions are for values above LAST, or those that are VALUE; others skip them. */
#define ABOVE(last, n) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 0, n)
#define IS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n)
/* A level of socket options, whose value is loaded, and its last option. */
#define OPTIONS(level, last) IS(level, 4), ARGUMENT(2), ABOVE(last, 1), FAIL(ENOPROTOOPT), ALLOW

int main(int argc, char **argv)
{
	struct sock_filter filter[] = {
		CALL,
		ABOVE(LAST_CALL, 1), FAIL(ENOSYS),
		IS(SYS_prctl, 6), ARGUMENT(0), ABOVE(LAST_OF_PROCESSES, 3), ABOVE(MAGIC_OF_PROCESSES, 1), ALLOW, FAIL(EINVAL), ALLOW,
		IS(SYS_memfd_create, 4), ARGUMENT(1), ABOVE(FLAGS_OF_MEMORY, 1), FAIL(EINVAL), ALLOW,
		IS(SYS_seccomp, 4), ARGUMENT(1), ABOVE(FLAGS_OF_FILTERS, 1), FAIL(EINVAL), ALLOW,
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 1, 0), ALLOW,
		ARGUMENT(1),
		OPTIONS(SOL_SOCKET, LAST_OF_SOCKETS),
		OPTIONS(IPPROTO_TCP, LAST_OF_TCP),
		OPTIONS(IPPROTO_IP, LAST_OF_IP),
		ALLOW};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	if (argc < 2) {
		fputs("usage: old_kernel PROGRAM ARGUMENT...\n", stderr);
		return 2;
	}
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("old_kernel: seccomp");
		return 1;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 127;
}
