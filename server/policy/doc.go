// Package policy decides who may do what: an access policy in one small file.
//
// A policy is lines of three fields, each a list separated by commas:
//
//	# who                          verbs             what
//	uri:spiffe://bank/teller       read,append       account,loan
//	uri:spiffe://bank/batch/*      read              *
//	uri:spiffe://bank/batch/*      lease             projector/*
//	dns:ops.bank.example           *                 *
//
// What no line allows is denied; there are no lines that deny, so their order does not
// matter. A '*' at the end of a name stands for all names that begin with what stands
// before it, and alone for all; as a verb it stands for all verbs. What is behind a '#'
// that begins a line or follows a blank is a comment.
//
// Names in the first field are identities as the server makes them: "uri:", "dns:" or
// "email:" and the name in the verified client certificate, "token:" and the name of a
// token, "proxy:" and what a trusted proxy says, or "anonymous". Names in the third are
// categories and topics; for the verb lease alone they are names of leases.
//
// The parser is strict: an unknown verb, a name that can never match, a line that is
// there twice or adds nothing, and a file that is cut off are errors that name the line.
package policy
