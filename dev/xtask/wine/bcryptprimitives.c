// The one function of bcryptprimitives.dll that Rust's standard library needs, for versions of Wine that do not have this library.

#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    return RtlGenRandom(data, (ULONG)length);
}
