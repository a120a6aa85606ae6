/* Arguments of any MPI: lists of n words, as parameters, types and arguments. */
#ifndef ISTHMUS_WORDS_H
#define ISTHMUS_WORDS_H

#include <stdint.h>

/* An argument: an int in its lower half, or a pointer. No call has floating-point ones. */
typedef uintptr_t word;

/* What a call returns that can't be made: MPI_ERR_OTHER in most MPIs; in none success. */
#define FAILED 15

#define PARAMETERS_0 void
#define PARAMETERS_1 word a
#define PARAMETERS_2 PARAMETERS_1, word b
#define PARAMETERS_3 PARAMETERS_2, word c
#define PARAMETERS_4 PARAMETERS_3, word d
#define PARAMETERS_5 PARAMETERS_4, word e
#define PARAMETERS_6 PARAMETERS_5, word f
#define PARAMETERS_7 PARAMETERS_6, word g
#define PARAMETERS_8 PARAMETERS_7, word h
#define PARAMETERS_9 PARAMETERS_8, word i
#define PARAMETERS_10 PARAMETERS_9, word j

#define TYPES_0 void
#define TYPES_1 word
#define TYPES_2 TYPES_1, word
#define TYPES_3 TYPES_2, word
#define TYPES_4 TYPES_3, word
#define TYPES_5 TYPES_4, word
#define TYPES_6 TYPES_5, word
#define TYPES_7 TYPES_6, word
#define TYPES_8 TYPES_7, word
#define TYPES_9 TYPES_8, word
#define TYPES_10 TYPES_9, word

#define WORDS_0
#define WORDS_1 a
#define WORDS_2 WORDS_1, b
#define WORDS_3 WORDS_2, c
#define WORDS_4 WORDS_3, d
#define WORDS_5 WORDS_4, e
#define WORDS_6 WORDS_5, f
#define WORDS_7 WORDS_6, g
#define WORDS_8 WORDS_7, h
#define WORDS_9 WORDS_8, i
#define WORDS_10 WORDS_9, j

#endif
