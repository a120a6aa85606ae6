#include "say.h"

#include <stdarg.h>
#include <stdio.h>

void say(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* One call, so that lines of several ranks don't mix. */
    fprintf(stderr, "isthmus: %s\n", line);
}
