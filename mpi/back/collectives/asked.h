/* What the user asks for with ISTHMUS_COLL. */
#ifndef ISTHMUS_ASKED_H
#define ISTHMUS_ASKED_H

/* An algorithm or CHOICE_AUTO. Read once. All ranks have the same: the start of the job compares. */
int asked(void);

#endif
