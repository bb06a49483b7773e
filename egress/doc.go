// Package egress is the part of the network wall that runs outside of the box, in
// stage 1: it accepts the connections that the command makes, decides each by the
// name it was made for, resolves and dials that name from the host, and carries
// the bytes.
//
// The listening sockets belong to the network namespace of the box and are handed
// over by descriptor; a socket stays in the namespace that it was made in, so that
// nothing of this package has to enter the box. Inside there is no other interface
// than loopback, and therefore no way around these sockets.
//
// One decision serves every entrance: redirected connections, the HTTP proxy and
// the SOCKS proxy. What is refused is reset at once and told as an [Event].
//
// Rules for names never allow a literal address. A name is resolved once for each
// connection, every address of the answer is checked, and what is dialled is one of these:
// an answer with an address that is not of the public internet, or that is the host's
// own, refuses the name, unless a rule for networks is written for that address.
//
// What it does not promise: a name rule is about names. Which of several sites
// behind one address a client asks for, and what an allowed host does with what it
// is sent, is not seen here. Name lookups never leave the host for a name that no
// rule allows.
//
// The original destination of a redirected connection is read with SO_ORIGINAL_DST
// (include/uapi/linux/netfilter_ipv4.h) and IP6T_SO_ORIGINAL_DST
// (include/uapi/linux/netfilter_ipv6/ip6_tables.h); see ip(7) and splice(2).
package egress
