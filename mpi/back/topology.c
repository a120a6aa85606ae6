#include "topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paths.h"
#include "reading.h"

#define FIRST_LINE "isthmus topology 1"

/* Cuts a line into words. */
static int cut(struct reading *reading, char *line)
{
    reading->count = 0;
    char *rest = line, *word;
    line[strcspn(line, "#")] = '\0';
    while ((word = strtok_r(rest, " \t\r", &rest))) {
        if (reading->count == WORDS_MAX)
            return refuse(reading, "too many words, from here on", word);
        reading->words[reading->count++] = word;
    }
    return 0;
}

static int read_line(struct reading *reading, char *line)
{
    static const struct { const char *keyword; int (*read)(struct reading *); } kinds[] = {
        {"levels", read_levels}, {"site", read_site}, {"node", read_node},
        {"path", read_path}, {"group", read_group}, {"reorder", read_reorder}, {"self", read_self}, {"rank", read_rank},
    };
    if (reading->line == 1) {
        size_t length = strcspn(line, "\r");
        int first = length == strlen(FIRST_LINE) && strncmp(line, FIRST_LINE, length) == 0;
        return first ? 0 : refuse(reading, "the first line isn't `" FIRST_LINE "`", "");
    }
    if (cut(reading, line) != 0)
        return -1;
    if (reading->count == 0)
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(reading->words[0], kinds[i].keyword) == 0)
            return kinds[i].read(reading);
    return refuse(reading, "unknown word", reading->words[0]);
}

/* The whole file, with a zero byte at its end. */
static char *load(const char *file, size_t *length, char *why, size_t why_len)
{
    FILE *stream = fopen(file, "re");
    char *text = NULL;
    size_t room = 0;
    if (!stream) {
        snprintf(why, why_len, "%s", strerror(errno));
        return NULL;
    }
    *length = 0;
    for (;;) {
        if (*length + 1 >= room) {
            room = room ? room * 2 : 1 << 14;
            char *more = room <= 2 * (size_t)TOPOLOGY_BYTES_MAX + 2 ? realloc(text, room) : NULL;
            if (!more) {
                snprintf(why, why_len, "no memory, or longer than %ld bytes", TOPOLOGY_BYTES_MAX);
                break;
            }
            text = more;
        }
        size_t got = fread(text + *length, 1, room - *length - 1, stream);
        *length += got;
        if (*length > (size_t)TOPOLOGY_BYTES_MAX) {
            snprintf(why, why_len, "longer than %ld bytes", TOPOLOGY_BYTES_MAX);
            break;
        }
        if (got == 0 && !ferror(stream)) {
            text[*length] = '\0';
            fclose(stream);
            return text;
        }
        if (got == 0) {
            snprintf(why, why_len, "%s", strerror(errno));
            break;
        }
    }
    fclose(stream);
    free(text);
    return NULL;
}

/* Shrinks the matrix of paths to the sites there are. */
static int fit_paths(struct topology *topology)
{
    size_t sites = (size_t)topology->sites;
    struct path *fitted = calloc(sites * sites, sizeof *fitted);
    if (!fitted)
        return -1;
    if (topology->path)
        for (size_t from = 0; from < sites; from++)
            memcpy(fitted + from * sites, topology->path + from * SITES_MAX, sites * sizeof *fitted);
    free(topology->path);
    topology->path = fitted;
    return 0;
}

/* What can be said once all lines are read. */
static int finish(struct reading *reading)
{
    struct topology *topology = reading->topology;
    static char site[] = "site";
    if (reading->nodes.count == 0)
        return refuse(reading, "there is no node", "");
    if (topology->self >= 0 && topology->world_size > 0)
        return refuse(reading, "`self` and `rank` exclude each other", "");
    if (names_add(&reading->levels, site) < 0)
        return no_memory(reading);
    topology->levels = reading->levels.count;
    topology->level_names = reading->levels.name;
    topology->sites = reading->sites.count;
    topology->site_names = reading->sites.name;
    topology->nodes = reading->nodes.count;
    topology->groups = reading->groups.count;
    topology->group_names = reading->groups.name;
    topology->values = reading->values.count;
    topology->value_names = reading->values.name;
    /* They belong to the topology. */
    reading->levels.name = reading->sites.name = reading->groups.name = reading->values.name = NULL;
    return fit_paths(topology) == 0 ? 0 : no_memory(reading);
}

static int read_text(struct reading *reading, char *text, size_t length)
{
    if (strlen(text) != length) {
        reading->line = 1;
        return refuse(reading, "a byte is zero in this file", "");
    }
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        reading->line++;
        if (read_line(reading, line) != 0)
            return -1;
        line = end ? end + 1 : NULL;
    }
    return finish(reading);
}

struct topology *topology_read(const char *file, char *why, size_t why_len)
{
    struct topology *topology = calloc(1, sizeof *topology);
    struct reading reading = {.topology = topology, .why = why, .why_len = why_len};
    if (!topology) {
        no_memory(&reading);
        return NULL;
    }
    topology->self = -1;
    size_t length;
    topology->text = load(file, &length, why, why_len);
    int rc = topology->text ? read_text(&reading, topology->text, length) : -1;
    names_free(&reading.levels);
    names_free(&reading.sites);
    names_free(&reading.nodes);
    names_free(&reading.groups);
    names_free(&reading.values);
    if (rc != 0) {
        topology_free(topology);
        return NULL;
    }
    paths_fill(topology);
    return topology;
}

int topology_group(const struct topology *topology, int rank)
{
    for (int group = 0; group < topology->groups; group++)
        if (rank < topology->group_ends[group])
            return group;
    return -1;
}

void topology_free(struct topology *topology)
{
    if (!topology)
        return;
    free(topology->level_names);
    free(topology->site_names);
    free(topology->group_names);
    free(topology->group_ends);
    free(topology->value_names);
    free(topology->node);
    free(topology->world);
    free(topology->path);
    free(topology->places);
    free(topology->text);
    free(topology);
}
