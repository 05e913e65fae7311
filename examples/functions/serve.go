// Serve: a function as a container, as Cloud Run and Knative run it.

package functions

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long calls may go on behind SIGTERM.
const grace = 10 * time.Second

// Serve answers on $PORT, 8080 if it is not set, until SIGTERM or SIGINT comes and the
// calls under way are answered.
func Serve(open func(context.Context, Settings) (*Function, error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	f, err := open(ctx, FromEnv())
	if err != nil {
		return err
	}
	defer f.Close()
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("HOST"), port))
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: f, ReadHeaderTimeout: grace}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := srv.Shutdown(last); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
