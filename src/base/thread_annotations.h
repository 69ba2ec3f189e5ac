// Which mutex guards what, for clang's thread-safety analysis (-Wthread-safety).
//
// A member that is GUARDED_BY a mutex can be used only where the mutex is held; a function that
// REQUIRES a mutex can be called only there; one that EXCLUDES it can be called only elsewhere. The
// build with clang++ fails where that is not so. Other compilers ignore it.
#pragma once

#if defined(__clang__)
#define BERTH_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define BERTH_THREAD_ANNOTATION(x)
#endif

#define GUARDED_BY(mutex) BERTH_THREAD_ANNOTATION(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) BERTH_THREAD_ANNOTATION(pt_guarded_by(mutex))
#define REQUIRES(...) BERTH_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) BERTH_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define RETURN_CAPABILITY(mutex) BERTH_THREAD_ANNOTATION(lock_returned(mutex))

// For the classes in base/mutex.h.
#define CAPABILITY(name) BERTH_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY BERTH_THREAD_ANNOTATION(scoped_lockable)
#define ACQUIRE(...) BERTH_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) BERTH_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

// For a function that the analysis cannot follow, with a comment that says why.
#define NO_THREAD_SAFETY_ANALYSIS BERTH_THREAD_ANNOTATION(no_thread_safety_analysis)
