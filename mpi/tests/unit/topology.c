/* Topology files: what is read from right ones, and that wrong ones are refused. */
#include "../../back/topology.h"

#include <time.h>
#include <unistd.h>

#include "unit.h"

#define HEAD "isthmus topology 1\n"
#define GRID HEAD "site a\nsite b\nnode n1.a a\nnode n1.b b\n"
#define X63 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static char path[] = "/tmp/isthmus-topology-XXXXXX";

static struct topology *read_text(const char *text, size_t length, char *why, size_t why_len)
{
    FILE *file = fopen(path, "w");
    if (!file || fwrite(text, 1, length, file) != length || fclose(file) != 0)
        exit(2);
    *why = '\0';
    return topology_read(path, why, why_len);
}

static const struct { const char *text, *why; } refused[] = {
    {"", "line 1"},
    {"isthmus topology 2\n", "line 1: the first line"},
    {" isthmus topology 1\n", "line 1: the first line"},
    {"isthmus topology 1 # of a job\n", "line 1: the first line"},
    {"#\nisthmus topology 1\n", "line 1: the first line"},
    {HEAD, "there is no node"},
    {HEAD "site a\n", "there is no node"},
    {HEAD "city a\n", "line 2: unknown word: city"},
    {HEAD "site\n", "line 2: a site has"},
    {HEAD "site a b\n", "line 2: a site has"},
    {HEAD "site a_b\n", "line 2: not a name: a_b"},
    {HEAD "site a..b\n", "line 2: not a name"},
    {HEAD "site .a\n", "line 2: not a name"},
    {HEAD "site a.\n", "line 2: not a name"},
    {HEAD "site \xc3\xa4\n", "line 2: not a name"},
    {HEAD "site a\x01\n", "line 2: not a name"},
    {HEAD "site " X63 "x\n", "line 2: not a name"},
    {HEAD "site " X63 "." X63 "." X63 "." X63 "\n", "line 2: not a name"},
    {HEAD "site a\nsite a\n", "line 3: named twice: a"},
    {HEAD "site a\nlevels l\n", "line 3: `levels` comes once"},
    {HEAD "levels l\nlevels m\n", "line 3: `levels` comes once"},
    {HEAD "levels\n", "line 2: `levels` names none"},
    {HEAD "levels site\n", "line 2: this level can't be named so: site"},
    {HEAD "levels node\n", "line 2: this level can't be named so: node"},
    {HEAD "levels l l\n", "line 2: named twice: l"},
    {HEAD "levels a b c d e f g h\n", "line 2: too many"},
    {HEAD "levels l\nsite a\n", "line 3: a site has"},
    {HEAD "levels l\nsite a x y\n", "line 3: a site has"},
    {HEAD "levels l\nsite a x/y\n", "line 3: not a name: x/y"},
    {HEAD "a b c d e f g h i j k l m\n", "line 2: too many words"},
    {HEAD "node n a\n", "line 2: no such site: a"},
    {HEAD "site a\nnode n\n", "line 3: a node has"},
    {HEAD "site a\nnode n a g\n", "line 3: a node has"},
    {GRID "reorder all\n", "line 6: `reorder` stands alone"},
    {GRID "group g\n", "line 6: a group has"},
    {GRID "group g/h 1\n", "line 6: not a name: g/h"},
    {GRID "group g 0\n", "line 6: not a number of ranks: 0"},
    {GRID "group g -1\n", "line 6: not a number of ranks"},
    {GRID "group g 1.5\n", "line 6: not a number of ranks"},
    {GRID "group g 2147483648\n", "line 6: not a number of ranks"},
    {GRID "group g 2147483647\ngroup h 1\n", "line 7: the groups have too many ranks"},
    {GRID "group g 1\ngroup g 1\n", "line 7: named twice: g"},
    {HEAD "site a\nnode n a\nnode n a\n", "line 4: named twice: n"},
    {GRID "path a\n", "line 6: a path has"},
    {GRID "path a b 1\n", "line 6: a path has"},
    {GRID "path a b 1 2 3\n", "line 6: a path has"},
    {GRID "path a c 1 2\n", "line 6: no such site: c"},
    {GRID "path a b -1 2\n", "line 6: not a time in microseconds: -1"},
    {GRID "path a b 1e3 2\n", "line 6: not a time"},
    {GRID "path a b nan 2\n", "line 6: not a time"},
    {GRID "path a b 1.2.3 2\n", "line 6: not a time"},
    {GRID "path a b .5 2\n", "line 6: not a time"},
    {GRID "path a b 99999999999999999999 2\n", "line 6: not a time"},
    {GRID "path a b 1 inf\n", "line 6: not a rate"},
    {GRID "path a b 1 0x10\n", "line 6: not a rate"},
    {GRID "path a b 1 9999999999999999999999999999\n", "line 6: not a rate"},
    {GRID "self\n", "line 6: `self` has one node"},
    {GRID "self n2.a\n", "line 6: no such node: n2.a"},
    {GRID "self n1.a\nself n1.a\n", "line 7: `self` comes once"},
    {GRID "rank 0\n", "line 6: `rank` has"},
    {GRID "rank -1 n1.a\n", "line 6: not a rank: -1"},
    {GRID "rank 1.5 n1.a\n", "line 6: not a rank: 1.5"},
    {GRID "rank 1000000 n1.a\n", "line 6: not a rank"},
    {GRID "rank 4294967296 n1.a\n", "line 6: not a rank"},
    {GRID "rank 0 n2.a\n", "line 6: no such node: n2.a"},
    {GRID "rank 0 n1.a\nrank 0 n1.b\n", "line 7: this rank has a node: 0"},
    {GRID "self n1.a\nrank 0 n1.a\n", "`self` and `rank` exclude each other"},
};

static void check_refused(void)
{
    char why[256];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct topology *topology = read_text(refused[i].text, strlen(refused[i].text), why, sizeof why);
        CHECK(!topology, "accepted: %s", refused[i].text);
        CHECK(strstr(why, refused[i].why), "said `%s`, not `%s`", why, refused[i].why);
        topology_free(topology);
    }
    static const char zero[] = GRID "self n1.a\0\n";
    CHECK(!read_text(zero, sizeof zero - 1, why, sizeof why), "a zero byte");
    CHECK(!topology_read("/nonexistent/file", why, sizeof why) && strstr(why, "No such file"), "%s", why);
    CHECK(!topology_read("/", why, sizeof why) && *why, "%s", why);
    /* The text of a refusal is bounded, whatever the file says. */
    char small[16];
    static char line[100000] = HEAD;
    memset(line + strlen(line), 'y', sizeof line - strlen(HEAD) - 1);
    CHECK(!read_text(line, strlen(line), small, sizeof small) && strlen(small) < sizeof small, "%s", small);
}

static void check_whole(void)
{
    static const char text[] =
        HEAD "# a comment\r\n\n  levels continent region # two\nsite a europe west\nsite b europe east\n"
             "site c america west\t\nnode n1.a a\nnode n2.a a\nnode n1.b b\nnode n1.c c\ngroup red 1\ngroup blue 2\n"
             "reorder\npath a b 1500.5 1000000\npath b b 20 5000000\nself n1.b";
    char why[256];
    struct topology *t = read_text(text, sizeof text - 1, why, sizeof why);
    CHECK(t, "%s", why);
    if (!t)
        return;
    CHECK(t->levels == 3 && t->sites == 3 && t->nodes == 4 && t->groups == 2, "%d %d %d %d", t->levels, t->sites, t->nodes, t->groups);
    CHECK(!strcmp(t->level_names[0], "continent") && !strcmp(t->level_names[1], "region") && !strcmp(t->level_names[2], "site"), "levels");
    CHECK(t->self == 2 && t->world_size == 0 && t->reorder, "%d %d", t->self, t->world_size);
    CHECK(topology_group(t, 0) == 0 && topology_group(t, 1) == 1 && topology_group(t, 2) == 1 && topology_group(t, 3) == -1, "groups");
    CHECK(t->node[0].place[0] == t->node[2].place[0] && t->node[0].place[0] != t->node[3].place[0], "continents");
    CHECK(t->node[0].place[1] != t->node[2].place[1], "regions");
    CHECK(t->node[0].place[2] == 0 && t->node[1].place[2] == 0 && t->node[2].place[2] == 1 && t->node[3].place[2] == 2, "sites");
    CHECK(!strcmp(t->value_names[t->node[3].place[0]], "america"), "values");
    CHECK(t->path[0 * 3 + 1].rtt_seconds == 0.0015005 && t->path[1 * 3 + 0].rtt_seconds == 0.0015005, "%g", t->path[1].rtt_seconds);
    CHECK(t->path[0 * 3 + 1].bytes_per_second == 1e6 && t->path[1 * 3 + 1].bytes_per_second == 5e6, "rates");
    CHECK(t->path[2].rtt_seconds == 0 && t->path[2].bytes_per_second == 0, "unknown path");
    topology_free(t);
}

/* The hash tells files apart, and doesn't tell nodes of one file apart. */
static void check_hash(void)
{
    static const char *const texts[] = {
        GRID "self n1.a\n", GRID "self n1.b\n", GRID "\n#\npath b a 0 0\n", GRID "path a b 1 0\n", GRID "path a b 0 1\n",
        GRID "node n2.a a\n", GRID "node n2.b b\n", GRID "group g 1\n", GRID "group h 1\n", GRID "group g 2\n", GRID "rank 0 n1.a\n",
        GRID "reorder\n",
        HEAD "levels l\nsite a x\nsite b x\nnode n1.a a\nnode n1.b b\n", HEAD "levels l\nsite a x\nsite b y\nnode n1.a a\nnode n1.b b\n",
    };
    enum { COUNT = sizeof texts / sizeof *texts };
    unsigned long long hash[COUNT];
    char why[256];
    for (int i = 0; i < COUNT; i++) {
        struct topology *t = read_text(texts[i], strlen(texts[i]), why, sizeof why);
        CHECK(t, "%d: %s", i, why);
        hash[i] = t ? topology_hash(t) : 0;
        topology_free(t);
        for (int j = 0; j < i; j++)
            CHECK((hash[i] == hash[j]) == (i < 3 && j < 3), "%d %d", i, j);
    }
}

/* The bounds, each reached and passed. */
static void check_bounds(void)
{
    static const struct { const char *before, *format; int most; } bounds[] = {
        {HEAD "site a\n", "node n%d a\n", NODES_MAX},
        {HEAD "site a\nnode n a\n", "site s%d\n", SITES_MAX - 1},
        {GRID, "group g%d 1\n", GROUPS_MAX},
    };
    char why[256];
    for (int b = 0; b < 3; b++) {
        for (int more = 0; more < 2; more++) {
            FILE *file = fopen(path, "w");
            fputs(bounds[b].before, file);
            for (int i = 0; i < bounds[b].most + more; i++)
                fprintf(file, bounds[b].format, i);
            fclose(file);
            clock_t start = clock();
            struct topology *t = topology_read(path, why, sizeof why);
            CHECK((t != NULL) == !more, "%d: %s", b, why);
            CHECK(!more || strstr(why, "too many"), "%s", why);
            CHECK(clock() - start < CLOCKS_PER_SEC, "%d lines take too long", bounds[b].most);
            topology_free(t);
        }
    }
    FILE *file = fopen(path, "w");
    fputs(GRID, file);
    fclose(file);
    CHECK(truncate(path, TOPOLOGY_BYTES_MAX + 1) == 0, "truncate");
    CHECK(!topology_read(path, why, sizeof why) && strstr(why, "longer than"), "%s", why);
}

/* Files with random changes are read or refused, with a reason. */
static void check_noise(void)
{
    static const char text[] =
        HEAD "levels l m\nsite a x y\nsite b x z\nnode n1.a a\nnode n1.b b\ngroup red 1\npath a b 1500.5 1000000\nrank 0 n1.b\nrank 7 n1.a\n";
    static const char bytes[] = "\n\n   \t#.-019anlrsx\0\xff\r";
    char changed[sizeof text], why[256];
    int read = 0;
    srand(42);
    for (int round = 0; round < 300; round++) {
        size_t length = sizeof text - 1 - (size_t)(rand() % 4 == 0 ? rand() % 40 : 0);
        memcpy(changed, text, sizeof text);
        for (int change = rand() % 4; change >= 0; change--)
            changed[sizeof HEAD + (size_t)rand() % (length - sizeof HEAD)] = bytes[(size_t)rand() % sizeof bytes];
        struct topology *topology = read_text(changed, length, why, sizeof why);
        CHECK(!topology == (*why != '\0'), "%s", why);
        read += topology != NULL;
        topology_free(topology);
    }
    CHECK(read > 10 && read < 290, "%d", read);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 2;
    close(fd);
    check_refused();
    check_whole();
    check_hash();
    check_bounds();
    check_noise();
    unlink(path);
    return finish("topology");
}
