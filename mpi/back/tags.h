/* Tags of the library's own messages, all of which travel on one communicator. Pure: no MPI.
 *
 * A tag is made of three parts: the number by which the receiver knows the program's communicator,
 * the call's place in the sequence of calls on it, and what the message is within the call. */
#ifndef ISTHMUS_TAGS_H
#define ISTHMUS_TAGS_H

/* What a message may be within a call: see call.h. */
#define TAGS_OF_CALL 8

/* Communicators of one process that are connected at a time, at most. */
#define NUMBERS_MAX 1024

/* The least that an MPI may have as its largest tag (MPI-4.1, 9.1.2). */
#define TAG_MOST_LEAST 32767

struct tags {
    int numbers;    /* the receiver's numbers are 0 to this - 1 */
    int sequence;   /* calls on a communicator whose tags differ */
};

/* Divides what an MPI has, whose largest tag is `most`. */
struct tags tags_make(int most);

/* A message with this tag belongs to this call only: one that an error has left under way never
 * matches those of the next calls. */
int tag_make(const struct tags *tags, int number, unsigned sequence, int of_call);

/* The numbers that a process has given away. All zero is an empty set. */
struct numbers {
    unsigned long long taken[NUMBERS_MAX / 64];
    int next;       /* where the search begins, so that a number isn't given again soon */
};

/* A number below `limit`, or -1 if there is none. */
int numbers_take(struct numbers *numbers, int limit);
void numbers_give_back(struct numbers *numbers, int number);

#endif
