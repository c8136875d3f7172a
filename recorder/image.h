/* Process images and what they are made of: modules and code. Part of recorder/recorder.h, which
 * includes it. */
#ifndef DEJA_RECORDER_IMAGE_H
#define DEJA_RECORDER_IMAGE_H

/* ---- start.c ---- */
struct rec_recording *rec_new(const struct rec_options *opt, struct rec_tracer *tracer,
			      char *const argv[], char *const envp[], struct dj_error *err);

/* ---- layout.c ---- */
/* Before anything is started: where nobody can be told where to lie, nobody is. */
void rec_layout_look(struct rec_recording *rec);
/* The first process is about to become the program, of which this is the thread. */
void rec_layout_start(struct rec_thread *t);
/* In that process: what its exec needs. */
void rec_layout_become(const struct rec_recording *rec);
/* In hand, about to become another program: have it lie where it lay the last time. */
enum rec_state rec_layout_fix(struct rec_thread *t, rec_then *then);
/* It has, or has failed to: the personality is its own again. */
enum rec_state rec_layout_done(struct rec_thread *t, rec_then *then);
/* The call that makes it so, to a series. */
void rec_layout_add(struct rec_thread *t, unsigned what);

/* ---- image.c ---- */
/* Mappings as the trace has them, and memory that no module file has. */
void rec_image_maps(struct rec_thread *t);
/* The image's translator, its own or one that it takes over. */
enum rec_state rec_image_translator(struct rec_thread *t);
struct tr_ops rec_translator_ops(struct rec_process *proc);
/* How one for such an image is to be; `tables` as in tr_config. */
struct tr_config rec_translator_config(const struct rec_thread *t, uint8_t *tables);
/* At the event of a successful exec. */
enum rec_state rec_image_begin(struct rec_thread *t, bool exec);
/* The program's name for messages: the first one's as the user has called it; and its path. Both
 * hold until the next call. */
const char *rec_program_name(struct rec_thread *t);
const char *rec_program_path(struct rec_thread *t);
/* Deja's memory cannot be put into the new image, in which nothing of it is: the first one is not
 * started, others go on unrecorded. */
enum rec_state rec_no_image(struct rec_thread *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- modules.c ---- */
/* The module number of the ELF file that `link` is, which the program knows as `path`, or -1 if it
 * is none. */
int rec_module_at(struct rec_recording *rec, const char *link, const char *path);
/* Notice modules whose files have been written to: code from there may have changed. */
void rec_modules_check(struct rec_recording *rec);
/* There is something to look at: one may have other bytes than the trace says. */
bool rec_modules_told(const struct rec_recording *rec);
/* When no process is left. The kernel takes some ten milliseconds to forget what is watched, and
 * whoever closes the descriptor before that waits for it. */
void rec_modules_unwatch(struct rec_recording *rec);
void rec_modules_free(struct rec_recording *rec);

/* ---- perfmap.c ---- */
/* The process has ended: keep the names that it has given to code made at run time. */
void rec_perf_map(struct rec_process *proc);

/* ---- code.c ---- */
size_t rec_code_read(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing);
uint64_t rec_code_translated(void *ctx, uint64_t pc, size_t len);
bool rec_code_known(void *ctx, uint64_t pc, size_t len);
struct tr_kept *rec_code_kept(void *ctx, uint64_t pc, uint64_t *base);
void rec_code_forget(struct rec_process *proc, uint64_t start, uint64_t end);
/* These pages, which were not executable, are mapped anew or not at all. */
void rec_code_replaced(struct rec_process *proc, uint64_t start, uint64_t end);
/* Whether code that may change unheard has been written there since its page was read. */
bool rec_code_stale(struct rec_process *proc, uint64_t pc);
/* It has, or has what was translated at pc. */
void rec_code_changed(struct rec_process *proc, uint64_t pc);
/* The protection of these pages has been changed to `prot`. */
void rec_code_protected(struct rec_process *proc, uint64_t start, uint64_t end, uint32_t prot);
void rec_code_free(struct rec_process *proc);
/* The newest fact has made [start, end) executable, which may have been before. */
void rec_code_fact(struct rec_process *proc, uint64_t start, uint64_t end);
/* The number of the last one that made the page so. */
uint64_t rec_code_fact_of(const struct rec_process *proc, uint64_t page);
/* The bytes of the page if they are known to be those of its module, else NULL. */
const uint8_t *rec_code_bytes(struct rec_process *proc, uint64_t page);
/* Whether the page is code that has the bytes of its module and does not change unheard, as far as
 * anything was translated from it. */
bool rec_code_is_modules(struct rec_process *proc, uint64_t page);
/* The bytes that the page of code has, if it is such a page and the process has never written to
 * it: those of the file, which are not read from the process. Else NULL. They are the file's own,
 * and change with it: ask rec_modules_told() before and afterwards. */
const uint8_t *rec_code_of_file(struct rec_process *proc, uint64_t page);
/* Whether these bytes, which it has there, are the module's file's. */
bool rec_code_is_like_file(struct rec_process *proc, uint64_t page, const uint8_t bytes[4096]);

#endif
