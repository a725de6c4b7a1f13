/*
 * The part of pipeline_kafka that has to live inside the server. Neither Kafka nor Python does: they run in
 * children of their own, so what kills them never resets the server.
 * In: the settings pipeline_kafka.*, and start_workers(), begin_as(), end_as() called from SQL.
 * Out: one Python child for each slot of a database, and what it says in the server's log.
 *   launcher   once at server start: a starter for each database, which starts workers if anything consumes there
 *   worker     a shim around one child: starts it, waits for it, starts it again
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/heapam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 160000
#define member_can_set_role is_member_of_role
#define pgstat_get_local_beentry_by_index pgstat_fetch_stat_local_beentry
#endif

PG_MODULE_MAGIC;

#define MAX_WORKERS 1024  /* a database */
#define MAX_SLOTS 2048    /* likewise: those behind its workers are for replays */
#define MIN_TOKEN 16      /* characters */
#define LOG_LINE 8192     /* bytes; a longer line is split */
#define STOP_TIMEOUT 5000 /* ms from SIGTERM to SIGKILL */
#define FIRST_DELAY 100   /* ms before a child is started again; doubles */
#define LAST_DELAY 30000  /* ms, up to here */
#define HEALTHY 60000     /* ms a child must live for the delay to begin anew */
#define LAST_CALL 1000    /* ms a shim without work stays for a request on its way */

/* What a worker is told and shows as its application_name: no database's name, which can change or be too long. */
#define SHIM "pipeline_kafka worker %u/%d"
#define LEAVING "leaving " /* hides a shim from new requests; one that saw it before may be on its way */

/* What holds a trigger: no SET ROLE, no temporary table, nothing put off until the old user is back. */
#define SWITCHED (SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION)

#define BY_SUPERUSER PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL
#define AFTER(ms) TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms)
#define REFUSE(code, ...) ereport(ERROR, (errcode(ERRCODE_##code), __VA_ARGS__))

typedef struct Child {
    Oid database;
    int slot;
    char name[NAMEDATALEN + 16]; /* <database>/<slot> */
    pid_t pid;
    int socket; /* its stdin, stdout and stderr; closed, it tells either that the other is gone. -1 then */
    int used;   /* bytes of line */
    char line[LOG_LINE + 1];
} Child;

static const struct config_enum_entry log_levels[] = {
    {"debug", DEBUG1, false}, {"info", INFO, false}, {"warning", WARNING, false}, {"error", ERROR, false}, {0}};
static int workers, log_level;
static char *conninfo, *python;
static bool preloaded;
static volatile sig_atomic_t start_requested;

static struct request { /* for workers. A stack: rolling back to a savepoint pops it */
    struct request *before;
    SubTransactionId subtransaction;
    int first, end; /* slots; that of end is not one of them */
} *requested;

static struct { /* what it takes to start workers, gathered while the transaction can still fail */
    bool wanted[MAX_SLOTS];
    char database[NAMEDATALEN];
    pid_t shim[MAX_SLOTS]; /* by slot; 0 where none is seen, -1 where one is leaving */
} launch;

static struct { /* made by begin_as() */
    int level;      /* nesting level of the transaction; 0: not switched */
    int guc_level;  /* nesting level of the settings */
    Oid user;       /* to go back to */
    int context;    /* likewise */
    const char *token;
} switched;

PG_FUNCTION_INFO_V1(pipeline_kafka_preloaded);
PG_FUNCTION_INFO_V1(pipeline_kafka_setting);
PG_FUNCTION_INFO_V1(pipeline_kafka_start_workers);
PG_FUNCTION_INFO_V1(pipeline_kafka_begin_as);
PG_FUNCTION_INFO_V1(pipeline_kafka_end_as);

/* ---- settings ---- */

Datum pipeline_kafka_preloaded(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(preloaded); }

/* Not conninfo: it may hold a password. */
Datum pipeline_kafka_setting(PG_FUNCTION_ARGS) {
    char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
    if (strcmp(name, "workers") != 0 && strcmp(name, "python") != 0 && strcmp(name, "log_level") != 0)
        REFUSE(UNDEFINED_OBJECT, errmsg("no setting \"%s\" to read: workers, python or log_level", name));
    PG_RETURN_TEXT_P(cstring_to_text(GetConfigOption(psprintf("pipeline_kafka.%s", name), false, false)));
}

static void define_settings(void) {
    static char installed[MAXPGPATH];
    snprintf(installed, MAXPGPATH, "%s/pipeline_kafka/venv/bin/python", pkglib_path);
    DefineCustomIntVariable("pipeline_kafka.workers", "Workers that a consuming database runs at least.", NULL,
                            &workers, 1, 0, MAX_WORKERS, BY_SUPERUSER);
    DefineCustomStringVariable("pipeline_kafka.conninfo", "How workers connect (libpq; empty: Unix socket).", NULL,
                               &conninfo, "", BY_SUPERUSER);
    DefineCustomStringVariable("pipeline_kafka.python", "The Python interpreter that runs workers.", NULL,
                               &python, installed, BY_SUPERUSER);
    DefineCustomEnumVariable("pipeline_kafka.log_level", "The least level of a worker's messages to log.",
                             "To see debug, the server's log_min_messages must be debug1 as well.",
                             &log_level, INFO, log_levels, BY_SUPERUSER);
    EmitWarningsOnPlaceholders("pipeline_kafka"); /* since 15 an old name, for MarkGUCPrefixReserved() */
}

/* ---- starting workers when a transaction commits ---- */

static BackgroundWorker describe(const char *kind, int restart_time) {
    BackgroundWorker worker = {.bgw_restart_time = restart_time};
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished; /* a standby consumes nothing */
    snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "pipeline_kafka");
    snprintf(worker.bgw_function_name, BGW_MAXLEN, "pipeline_kafka_%s_main", kind);
    snprintf(worker.bgw_type, BGW_MAXLEN, "pipeline_kafka %s", kind);
    strlcpy(worker.bgw_name, worker.bgw_type, BGW_MAXLEN);
    return worker;
}

static void warn_too_few(int started, int wanted, const char *database) {
    ereport(WARNING,
            (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
             errmsg("only %d of %d pipeline_kafka workers of \"%s\" could be started", started, wanted, database),
             errhint("Raise max_worker_processes, now %d, and restart the server.", max_worker_processes)));
}

Datum pipeline_kafka_start_workers(PG_FUNCTION_ARGS) {
    int count = PG_GETARG_INT32(0), first = PG_GETARG_INT32(1);
    if (count < 0 || count > MAX_WORKERS || first < 0 || first > MAX_SLOTS - count)
        REFUSE(INVALID_PARAMETER_VALUE, errmsg("cannot start %d workers from slot %d on", count, first));
    struct request *request = MemoryContextAlloc(TopTransactionContext, sizeof(struct request));
    *request = (struct request) {requested, GetCurrentSubTransactionId(), first, first + count};
    requested = count > 0 ? request : requested;
    PG_RETURN_VOID();
}

static void plan_launch(void) {
    memset(&launch, 0, sizeof(launch));
    for (struct request *request = requested; request != NULL; request = request->before)
        memset(launch.wanted + request->first, true, request->end - request->first);
    strlcpy(launch.database, get_database_name(MyDatabaseId), NAMEDATALEN);
    pgstat_clear_backend_activity_snapshot();
    for (int i = pgstat_fetch_stat_numbackends(); i > 0; i--) {
        PgBackendStatus *backend = &pgstat_get_local_beentry_by_index(i)->backendStatus;
        Oid database;
        int slot, skip = strncmp(backend->st_appname, LEAVING, strlen(LEAVING)) == 0 ? strlen(LEAVING) : 0;
        if (backend->st_backendType == B_BG_WORKER && sscanf(backend->st_appname + skip, SHIM, &database, &slot) == 2 &&
            database == MyDatabaseId && slot < MAX_SLOTS && launch.shim[slot] <= 0)
            launch.shim[slot] = skip != 0 ? -1 : backend->st_procpid;
    }
}

static bool launch_worker(int slot) {
    static BackgroundWorkerHandle *last[MAX_SLOTS]; /* what this backend has registered */
    BackgroundWorker worker = describe("worker", 1); /* s, and at once after the server has crashed */
    pid_t pid;
    if (launch.shim[slot] > 0 && kill(launch.shim[slot], SIGUSR2) == 0)
        return true; /* one that runs is told: its child may have looked before we committed, and be ending */
    if (launch.shim[slot] == 0 && last[slot] != NULL && GetBackgroundWorkerPid(last[slot], &pid) != BGWH_STOPPED)
        return true; /* too young to be seen: its child will look after we have committed */
    snprintf(worker.bgw_name, BGW_MAXLEN, "%s %s/%d", worker.bgw_type, launch.database, slot);
    snprintf(worker.bgw_extra, BGW_EXTRALEN, SHIM, MyDatabaseId, slot);
    MemoryContext context = MemoryContextSwitchTo(TopMemoryContext); /* for the handle */
    bool registered = RegisterDynamicBackgroundWorker(&worker, &last[slot]);
    MemoryContextSwitchTo(context);
    return registered;
}

static void launch_workers(void) {
    int running = 0, wanted = 0;
    for (int slot = 0; requested != NULL && slot < MAX_SLOTS; slot++)
        if (launch.wanted[slot] && ++wanted)
            running += launch_worker(slot);
    if (running < wanted)
        warn_too_few(running, wanted, launch.database);
}

static void refuse_if_switched(int level) {
    if (switched.level == level)
        REFUSE(INVALID_TRANSACTION_STATE, errmsg("cannot commit between begin_as() and end_as()"));
}

static void at_transaction(XactEvent event, void *arg) {
    if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE) {
        refuse_if_switched(1);
        if (requested != NULL && event == XACT_EVENT_PRE_PREPARE) /* COMMIT PREPARED would not know of it */
            REFUSE(FEATURE_NOT_SUPPORTED, errmsg("cannot prepare a transaction that starts workers"));
        if (requested != NULL)
            plan_launch();
        return;
    }
    if (event == XACT_EVENT_COMMIT)
        launch_workers();
    requested = NULL;
    switched.level = 0;
}

static void at_subtransaction(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg) {
    if (event == SUBXACT_EVENT_PRE_COMMIT_SUB)
        refuse_if_switched(GetCurrentTransactionNestLevel());
    if (event != SUBXACT_EVENT_ABORT_SUB)
        return;
    while (requested != NULL && requested->subtransaction >= id)
        requested = requested->before;
    if (switched.level >= GetCurrentTransactionNestLevel()) /* the server has put user and settings back */
        switched.level = 0;
}

/* ---- writing rows as the owner of a consumer ---- */

/* SET ROLE would not hold a trigger: RESET ROLE is one statement away. From here the way back takes a token. */
Datum pipeline_kafka_begin_as(PG_FUNCTION_ARGS) {
    Oid role = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0); /* not STRICT, which would return and not switch */
    char *token = PG_ARGISNULL(1) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(1));
    char *name = GetUserNameFromId(role, false);
    if (InLocalUserIdChange() || InSecurityRestrictedOperation())
        REFUSE(INVALID_TRANSACTION_STATE, errmsg("cannot begin_as() within begin_as() or SECURITY DEFINER"));
    if (strlen(token) < MIN_TOKEN)
        REFUSE(INVALID_PARAMETER_VALUE, errmsg("begin_as() needs a token of %d characters", MIN_TOKEN));
    if (!member_can_set_role(GetSessionUserId(), role))
        REFUSE(INSUFFICIENT_PRIVILEGE, errmsg("permission denied to begin_as() \"%s\"", name),
               errhint("Connect as %s, as a member of that role, or as a superuser.", quote_identifier(name)));
    switched.token = MemoryContextStrdup(TopTransactionContext, token);
    GetUserIdAndSecContext(&switched.user, &switched.context);
    switched.guc_level = NewGUCNestLevel(); /* or a trigger could leave us its search_path */
    switched.level = GetCurrentTransactionNestLevel();
    SetUserIdAndSecContext(role, switched.context | SWITCHED);
    PG_RETURN_VOID();
}

/* A trigger has one guess a savepoint: after a wrong one there is nothing left but to roll back. */
Datum pipeline_kafka_end_as(PG_FUNCTION_ARGS) {
    char *guess = PG_ARGISNULL(0) ? "" : text_to_cstring(PG_GETARG_TEXT_PP(0));
    bool right = switched.level == GetCurrentTransactionNestLevel() && strcmp(guess, switched.token) == 0;
    switched.token = "";
    if (!right || guess[0] == '\0')
        REFUSE(INSUFFICIENT_PRIVILEGE, errmsg("permission denied to end_as()"),
               errhint("It takes the token of its begin_as(), at the first try and in the same savepoint."));
    AtEOXact_GUC(false, switched.guc_level);
    SetUserIdAndSecContext(switched.user, switched.context);
    switched.level = 0;
    PG_RETURN_VOID();
}

/* ---- launcher and starter ---- */

static void run_starter(Form_pg_database database) {
    BackgroundWorkerHandle *handle;
    BackgroundWorker starter = describe("starter", BGW_NEVER_RESTART);
    starter.bgw_main_arg = ObjectIdGetDatum(database->oid);
    starter.bgw_notify_pid = MyProcPid;
    snprintf(starter.bgw_name, BGW_MAXLEN, "%s %s", starter.bgw_type, NameStr(database->datname));
    if (RegisterDynamicBackgroundWorker(&starter, &handle))
        WaitForBackgroundWorkerShutdown(handle);
    else
        warn_too_few(0, workers, NameStr(database->datname));
}

/* One starter after the other: there may be more databases than background workers. */
PGDLLEXPORT void pipeline_kafka_launcher_main(Datum arg) {
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection(NULL, NULL, 0); /* to what databases share */
    StartTransactionCommand();
    Relation databases = table_open(DatabaseRelationId, AccessShareLock);
    TableScanDesc scan = table_beginscan_catalog(databases, 0, NULL);
    for (HeapTuple tuple; (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL;) {
        Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
        if (database->datallowconn && database->datconnlimit >= -1) /* -2: what DROP DATABASE left half done */
            run_starter(database);
    }
    table_endscan(scan);
    table_close(databases, AccessShareLock);
    CommitTransactionCommand();
}

PGDLLEXPORT void pipeline_kafka_starter_main(Datum database) {
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid, 0);
    StartTransactionCommand();
    if (OidIsValid(get_extension_oid("pipeline_kafka", true))) {
        PushActiveSnapshot(GetTransactionSnapshot());
        SPI_connect();
        SPI_execute("SELECT pipeline_kafka.start_wanted()", false, 0);
        SPI_finish();
        PopActiveSnapshot();
    }
    CommitTransactionCommand();
}

/* ---- the shim: one child, kept running ---- */

/* Does not return. In a process group of its own, or the postmaster's signals to ours would reach it too. */
static void become_child(int socket, char **argv) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    if (file >= 0 && write(file, "500", 3) == 3) /* short of memory: it before any backend */
        close(file);
    setpgid(0, 0);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        dup2(socket, fd);
    for (int fd = Min(sysconf(_SC_OPEN_MAX), 65536); --fd > STDERR_FILENO;)
        close(fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* one too stuck to notice that its stdin ended goes with us all the same */
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigset_t none; /* UnBlockSig would not do: it keeps SIGURG for our latch */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], argv);
    dprintf(STDERR_FILENO, "ERROR cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static void fork_child(Child *child, char **argv) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        ereport(ERROR, (errcode_for_socket_access(), errmsg("could not create a socket pair: %m")));
    sigprocmask(SIG_SETMASK, &BlockSig, NULL); /* until the child has left our handlers behind */
    child->pid = fork();
    if (child->pid == 0)
        become_child(ends[1], argv);
    sigprocmask(SIG_SETMASK, &UnBlockSig, NULL);
    if (child->pid < 0)
        ereport(ERROR, (errmsg("could not fork a worker: %m")));
    close(ends[1]);
    pg_set_noblock(ends[0]);
    child->socket = ends[0];
}

/* False when the database is gone. Its name is looked up for each child, since it can change. */
static bool start_child(Child *child) {
    start_requested = false;
    StartTransactionCommand();
    char *database = get_database_name(child->database);
    if (database != NULL) {
        char *argv[] = {python, "-I", "-m", "pipeline_kafka", "worker", "--supervised",
                        psprintf("--database=%s", database), psprintf("--slot=%d", child->slot),
                        psprintf("--log-level=%s", GetConfigOption("pipeline_kafka.log_level", false, false)),
                        NULL};
        char *folders = Unix_socket_directories[0] != '\0' ? Unix_socket_directories : "localhost";
        char *own = psprintf("host='%.*s' port=%d", (int) strcspn(folders, ","), folders, PostPortNumber);
        setenv("PIPELINE_KAFKA_CONNINFO", conninfo[0] != '\0' ? conninfo : own, 1); /* argv is for all to see */
        snprintf(child->name, sizeof(child->name), "%s/%d", database, child->slot);
        fork_child(child, argv);
        pgstat_report_appname(MyBgworkerEntry->bgw_extra);
        pgstat_report_activity(STATE_RUNNING, psprintf("worker %s: process %d", child->name, (int) child->pid));
    }
    CommitTransactionCommand();
    return database != NULL;
}

/* A word that begins the line is its level, but an ERROR, which would end us, becomes a WARNING. */
static void log_line(Child *child) {
    static const struct { const char *word; int level; } known[] = {
        {"DEBUG ", DEBUG1}, {"INFO ", LOG}, {"WARNING ", WARNING}, {"ERROR ", WARNING}, {"", LOG}};
    int i = 0;
    child->line[child->used] = '\0';
    child->used = 0;
    while (strncmp(child->line, known[i].word, strlen(known[i].word)) != 0)
        i++;
    ereport(known[i].level, (errmsg_internal("pipeline_kafka %s: %s", child->name,
                                             child->line + strlen(known[i].word)), errhidestmt(true)));
}

static void hang_up(Child *child) {
    if (child->used > 0)
        log_line(child);
    if (child->socket >= 0)
        close(child->socket);
    child->socket = -1;
}

/* Reads once, or a child that never stops talking would keep us from all else. True if there was something. */
static bool read_log(Child *child) {
    char text[LOG_LINE];
    ssize_t got = child->socket >= 0 ? read(child->socket, text, sizeof(text)) : -1;
    for (ssize_t i = 0; i < got; i++) {
        if (text[i] != '\n')
            child->line[child->used++] = text[i];
        if (text[i] == '\n' || child->used == LOG_LINE)
            log_line(child);
    }
    if (got == 0)
        hang_up(child);
    return got > 0;
}

/* For a signal or something to read. False if neither came in time; 0 is for ever. */
static bool wait_for_event(const Child *child, TimestampTz until) {
    long timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
    int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
    events |= (child->socket >= 0 ? WL_SOCKET_READABLE : 0) | (until != 0 ? WL_TIMEOUT : 0);
    events = WaitLatchOrSocket(MyLatch, events, child->socket, timeout, PG_WAIT_EXTENSION);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
        ConfigReloadPending = false;
        ProcessConfigFile(PGC_SIGHUP);
    }
    return (events & WL_TIMEOUT) == 0;
}

/* What waitpid() says of the child, once it has ended. */
static int wait_for_child(Child *child) {
    TimestampTz kill_at = 0;
    int status = 0;
    while (waitpid(child->pid, &status, WNOHANG) == 0) {
        if (ShutdownRequestPending && kill_at == 0) {
            kill(child->pid, SIGTERM);
            kill_at = AFTER(STOP_TIMEOUT);
        }
        if (!wait_for_event(child, kill_at)) {
            kill(child->pid, SIGKILL);
            kill_at = AFTER(STOP_TIMEOUT);
        }
        read_log(child);
    }
    while (read_log(child)) {}
    hang_up(child);
    return status;
}

static void wake(SIGNAL_ARGS) {
    int saved = errno;
    start_requested |= postgres_signal_arg == SIGUSR2;
    SetLatch(MyLatch);
    errno = saved;
}

/* Exits with 0, never to be started again, or 1, to be after bgw_restart_time: another code resets the server. */
PGDLLEXPORT void pipeline_kafka_worker_main(Datum arg) {
    Child child = {.socket = -1};
    int delay = FIRST_DELAY;
    sscanf(MyBgworkerEntry->bgw_extra, SHIM, &child.database, &child.slot);
    pqsignal(SIGINT, SIG_IGN); /* there is no query to cancel */
    pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGCHLD, wake);
    pqsignal(SIGUSR2, wake);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection(NULL, NULL, 0); /* to no database: it can be dropped and renamed */
    while (!ShutdownRequestPending && start_child(&child)) {
        TimestampTz healthy_at = AFTER(HEALTHY);
        int status = wait_for_child(&child);
        if (status == 0 || GetCurrentTimestamp() >= healthy_at)
            delay = FIRST_DELAY;
        if (status == 0)
            pgstat_report_appname(psprintf("%s%s", LEAVING, MyBgworkerEntry->bgw_extra));
        else if (!ShutdownRequestPending)
            ereport(LOG, (errmsg("pipeline_kafka %s: %s; starting it again in %d ms", child.name,
                                 wait_result_to_str(status), delay)));
        TimestampTz until = AFTER(status == 0 ? LAST_CALL : delay);
        while (!ShutdownRequestPending && !start_requested && wait_for_event(&child, until)) {}
        if (status == 0 && !start_requested)
            break;
        delay = Min(delay * 2, LAST_DELAY);
    }
    proc_exit(ShutdownRequestPending ? 1 : 0);
}

PGDLLEXPORT void _PG_init(void) {
    BackgroundWorker launcher = describe("launcher", 10);
    define_settings();
    RegisterXactCallback(at_transaction, NULL);
    RegisterSubXactCallback(at_subtransaction, NULL);
    preloaded = process_shared_preload_libraries_in_progress;
    if (preloaded && !IsBinaryUpgrade)
        RegisterBackgroundWorker(&launcher);
}
