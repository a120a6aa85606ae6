/* What the user asks for with ISTHMUS_COLL. */
#ifndef ISTHMUS_ASKED_H
#define ISTHMUS_ASKED_H

/* Reads it, in MPI_Init: a program that changes its environment later changes nothing. */
void asked_start(void);

/* An algorithm or CHOICE_AUTO. All ranks have the same: the start of the job compares. */
int asked(void);

#endif
