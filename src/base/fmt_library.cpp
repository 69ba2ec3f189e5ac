// The fmt library, compiled once as a part of Berth.
//
// Debian ships fmt as headers and as a shared library, but not as a static one, and Berth must
// depend on glibc only. Header-only use makes each file that formats text three to four times
// slower to compile.
// Berth formats nothing by the locale of the user. Without std::locale, the library of the
// simulated driver has half the size.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','
#include <fmt/format-inl.h>

// fmt's headers declare these templates as instantiated elsewhere. The list is for fmt 9 to 12.
FMT_BEGIN_NAMESPACE
namespace detail {
#if FMT_VERSION >= 100000 && FMT_VERSION < 120000
template void vformat_to(buffer<char>&, string_view, vformat_args<>::type, locale_ref);
#endif
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
}  // namespace detail
FMT_END_NAMESPACE
