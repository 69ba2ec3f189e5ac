// Annotations that say which mutex guards what, for clang's thread-safety analysis
// (-Wthread-safety).
//
// A member that is GUARDED_BY a mutex may be used only while the mutex is held; a function that
// REQUIRES a mutex may be called only while it is held; one that EXCLUDES a mutex, only while it is
// not. The build with clang++ fails on violations. Other compilers ignore the annotations.
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

// For a function that the analysis cannot follow. A comment beside it must say why.
#define NO_THREAD_SAFETY_ANALYSIS BERTH_THREAD_ANNOTATION(no_thread_safety_analysis)
