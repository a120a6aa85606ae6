/* Gives numbers 0, 1, ... to pairs of numbers, in the order in which they first come. */
#ifndef ISTHMUS_NUMBERING_H
#define ISTHMUS_NUMBERING_H

struct numbering {
    int count;
    unsigned slots;     /* a power of two */
    struct { int first, second, number; } *slot;    /* number: -1 for a free one */
};

/* For at most `most` different pairs. Returns 0, or -1 without memory. */
int numbering_start(struct numbering *numbering, int most);
int numbering_of(struct numbering *numbering, int first, int second);
void numbering_free(struct numbering *numbering);

#endif
