/* Messages to the user. */
#ifndef ISTHMUS_SAY_H
#define ISTHMUS_SAY_H

/* Writes one line "isthmus: ..." to standard error. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
