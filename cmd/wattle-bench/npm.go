// Fetching a package with npm into a cache folder.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// envCache names the environment variable with the folder that fetched packages are kept in.
const envCache = "WATTLE_PEERS_CACHE"

const withoutNode = "or leave out what npm has: -only floor,wattle,wattle-alone,pgnotch,watermill"

// npmPackage returns a folder whose node_modules holds the package in just this version, and what it needs.
func npmPackage(ctx context.Context, name, version string) (string, error) {
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			return "", fmt.Errorf("%s comes from npm, and there is no %s on PATH: install Node.js 20 or newer with npm, %s", name, command, withoutNode)
		}
	}
	cache := os.Getenv(envCache)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set %s: %w", envCache, err)
		}
		cache = filepath.Join(user, "wattle-peers")
	}
	dir := filepath.Join(cache, strings.NewReplacer("@", "", "/", "-").Replace(name)+"-"+version)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", name, "package.json")); err == nil {
		return dir, nil
	}
	return dir, npmInstall(ctx, cache, dir, name+"@"+version)
}

// npmInstall installs beside the place and renames, so that what is there is whole.
func npmInstall(ctx context.Context, cache, dir, what string) (err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, "npm-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", tmp, "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", what)
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install %s: %w: is the network there? Once fetched it is kept in %s; %s\n%s", what, err, cache, withoutNode, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}
