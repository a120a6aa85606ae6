#include "lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

static int is_empty(const char *text)
{
    return text[0] == '#' || text[strspn(text, " \t\r\n")] == '\0';
}

/* Returns how many items there are, or -1 with the reason. */
static int read_all(FILE *file, const struct lines *lines, void **items, char *why, size_t room)
{
    size_t count = 0, number = 0, space = 64;
    char text[1024];
    *items = allocate(space * lines->item_bytes);
    while (fgets(text, sizeof text, file)) {
        if (++number <= lines->skip || is_empty(text))
            continue;
        if (count == space)
            *items = resize(*items, (space *= 2) * lines->item_bytes);
        const char *wrong = count < lines->most ? lines->item_of(text, *items, count) : "there are too many lines";
        if (wrong) {
            snprintf(why, room, "line %zu: %s", number, wrong);
            return -1;
        }
        count++;
    }
    if (ferror(file))
        snprintf(why, room, "%s", strerror(errno));
    else if (count == 0)
        snprintf(why, room, "there is nothing in it");
    return ferror(file) || count == 0 ? -1 : (int)count;
}

int lines_read(const char *path, const struct lines *lines, void **items, char *error, size_t room)
{
    char why[256] = "";
    FILE *file = fopen(path, "r");
    int count = file ? read_all(file, lines, items, why, sizeof why) : -1;
    if (count < 0)
        snprintf(error, room, "%s: %s", path, file ? why : strerror(errno));
    if (file)
        fclose(file);
    return count;
}
