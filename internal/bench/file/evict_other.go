//go:build !linux

// Elsewhere the page cache cannot be told to forget: only reads from it are measured.

package main

import "errors"

func evict(string) error { return errors.ErrUnsupported }
