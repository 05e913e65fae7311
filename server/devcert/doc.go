// Package devcert makes a certificate authority and certificates for development and
// tests: keys are ECDSA P-256, the authority signs servers and clients itself and nobody
// below it.
//
// It is no PKI: there is no revocation but the server's deny list, and the authority's key
// lies in a file. In production take certificates from what issues yours.
package devcert
