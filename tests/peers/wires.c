// Leads the connections of the process that preloads it to the port WIRE_FROM of this machine to the
// port WIRE_TO instead: for tests of one process among several with the same configuration whose
// connection is cut.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int socket, const struct sockaddr *to, socklen_t length) {
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    const char *from = getenv("WIRE_FROM"), *instead = getenv("WIRE_TO");
    if (from && instead && to->sa_family == AF_INET) {
        struct sockaddr_in in = *(const struct sockaddr_in *)to;
        if (ntohs(in.sin_port) == atoi(from)) {
            in.sin_port = htons((unsigned short)atoi(instead));
            return real(socket, (const struct sockaddr *)&in, sizeof in);
        }
    }
    return real(socket, to, length);
}
