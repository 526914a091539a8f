/* The checkpoint interface of libcuda, as far as the agent uses it: a process's state is a digit in $FAKE_CUDA/<pid>, which
   a process makes that "uses CUDA". $FAKE_CUDA/refuse-<operation> makes an operation fail; all are noted in calls. */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED, ILLEGAL_STATE = 401 };

static void path(char *to, const char *name, int pid) {
    snprintf(to, 512, pid ? "%s/%s%d" : "%s/%s", getenv("FAKE_CUDA"), name, pid);
}

static int change(const char *operation, int pid, int from, int to) {
    char at[512];
    int state;
    snprintf(at, sizeof at, "%s/refuse-%s", getenv("FAKE_CUDA"), operation);
    if (access(at, F_OK) == 0) return ILLEGAL_STATE;
    path(at, "", pid);
    FILE *file = fopen(at, "r+");
    if (!file) return ILLEGAL_STATE;
    if (fscanf(file, "%d", &state) != 1 || state != from) { fclose(file); return ILLEGAL_STATE; }
    rewind(file);
    fprintf(file, "%d", to);
    fclose(file);
    path(at, "calls", 0);
    file = fopen(at, "a");
    fprintf(file, "%s\n", operation);
    fclose(file);
    return 0;
}

int cuInit(unsigned int flags) { return (int)flags; }

int cuCheckpointProcessGetState(int pid, int *state) {
    char at[512];
    path(at, "", pid);
    FILE *file = fopen(at, "r");
    if (!file) return ILLEGAL_STATE;
    int found = fscanf(file, "%d", state);
    fclose(file);
    return found == 1 ? 0 : ILLEGAL_STATE;
}

int cuCheckpointProcessLock(int pid, unsigned int *arguments) {
    return arguments && arguments[0] ? change("lock", pid, RUNNING, LOCKED) : ILLEGAL_STATE;
}
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return change("checkpoint", pid, LOCKED, CHECKPOINTED); }
int cuCheckpointProcessRestore(int pid, void *arguments) { return change("restore", pid, CHECKPOINTED, LOCKED); }
int cuCheckpointProcessUnlock(int pid, void *arguments) { return change("unlock", pid, LOCKED, RUNNING); }
