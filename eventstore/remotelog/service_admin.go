// The admin service and the lease service.

package remotelog

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

var errUnsupported = &eventstore.Error{Kind: errors.ErrUnsupported}

// sealed is a log that keeps a snapshot with the checksum that came with it, not one of
// what arrived: what was damaged on its way is noticed when it is loaded.
type sealed struct {
	eventstore.Log
	eventstore.Snapshots
	checksum [sha256.Size]byte
}

func (l sealed) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	sn.Checksum = l.checksum
	return l.Snapshots.SaveSnapshot(ctx, sn)
}

// saveSnapshot saves a snapshot as the store does, and keeps its checksum if it has one.
func (s *Service) saveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	log, ok := s.store.Log().(eventstore.Snapshots)
	if !ok || sn.Checksum == [sha256.Size]byte{} {
		return s.store.SaveSnapshot(ctx, sn)
	}
	return eventstore.New(sealed{s.store.Log(), log, sn.Checksum}, nil).SaveSnapshot(ctx, sn)
}

// CreateCategory implements the service.
func (s *Service) CreateCategory(ctx context.Context, m *wattlev1.CreateCategoryRequest) (*wattlev1.CreateCategoryResponse, error) {
	spec, err := wire.ToCategorySpec(m.GetSpec())
	if err == nil {
		err = s.store.CreateCategory(ctx, spec)
	}
	if err != nil {
		return nil, s.fail(ctx, "create category", "", err)
	}
	return &wattlev1.CreateCategoryResponse{}, nil
}

// DeleteCategory implements the service.
func (s *Service) DeleteCategory(ctx context.Context, m *wattlev1.DeleteCategoryRequest) (*wattlev1.DeleteCategoryResponse, error) {
	if err := s.store.DeleteCategory(ctx, eventstore.Category(m.GetName())); err != nil {
		return nil, s.fail(ctx, "delete category", "", err)
	}
	return &wattlev1.DeleteCategoryResponse{}, nil
}

// ListCategories implements the service.
func (s *Service) ListCategories(ctx context.Context, _ *wattlev1.ListCategoriesRequest) (*wattlev1.ListCategoriesResponse, error) {
	all, err := s.store.ListCategories(ctx)
	if err != nil {
		return nil, s.fail(ctx, "list categories", "", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c eventstore.CategorySpec) bool { return !s.visible(ctx, c.Name) })
	return &wattlev1.ListCategoriesResponse{Categories: wire.FromCategorySpecs(all)}, nil
}

// CreateStreams implements the service.
func (s *Service) CreateStreams(ctx context.Context, m *wattlev1.CreateStreamsRequest) (*wattlev1.CreateStreamsResponse, error) {
	if err := s.store.CreateStreams(ctx, wire.ToStreams(m.GetStreams())...); err != nil {
		return nil, s.fail(ctx, "create streams", "", err)
	}
	return &wattlev1.CreateStreamsResponse{}, nil
}

// DropStream implements the service.
func (s *Service) DropStream(ctx context.Context, m *wattlev1.DropStreamRequest) (*wattlev1.DropStreamResponse, error) {
	stream := eventstore.Stream(m.GetStream())
	if err := s.store.DropStream(ctx, stream); err != nil {
		return nil, s.fail(ctx, "drop stream", stream, err)
	}
	return &wattlev1.DropStreamResponse{}, nil
}

// SetHold implements the service.
func (s *Service) SetHold(ctx context.Context, m *wattlev1.SetHoldRequest) (*wattlev1.SetHoldResponse, error) {
	h, err := wire.ToHold(m.GetHold())
	if err == nil {
		err = s.store.SetHold(ctx, h)
	}
	if err != nil {
		return nil, s.fail(ctx, "set hold", h.Stream, err)
	}
	return &wattlev1.SetHoldResponse{}, nil
}

// ReleaseHold implements the service.
func (s *Service) ReleaseHold(ctx context.Context, m *wattlev1.ReleaseHoldRequest) (*wattlev1.ReleaseHoldResponse, error) {
	stream := eventstore.Stream(m.GetStream())
	if err := s.store.ReleaseHold(ctx, m.GetName(), eventstore.Category(m.GetCategory()), stream); err != nil {
		return nil, s.fail(ctx, "release hold", stream, err)
	}
	return &wattlev1.ReleaseHoldResponse{}, nil
}

// ListHolds implements the service.
func (s *Service) ListHolds(ctx context.Context, _ *wattlev1.ListHoldsRequest) (*wattlev1.ListHoldsResponse, error) {
	all, err := s.store.ListHolds(ctx)
	if err != nil {
		return nil, s.fail(ctx, "list holds", "", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(h eventstore.Hold) bool { return !s.visible(ctx, h.Category) })
	return &wattlev1.ListHoldsResponse{Holds: wire.FromHolds(all)}, nil
}

// Verify implements the service.
func (s *Service) Verify(ctx context.Context, _ *wattlev1.VerifyRequest, out *connect.ServerStream[wattlev1.VerifyResponse]) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	progress := func(p eventstore.Progress) {
		if err := out.Send(&wattlev1.VerifyResponse{Progress: wire.FromProgress(p)}); err != nil {
			stop(err) // nobody listens any more
		}
	}
	for f, err := range s.store.Verify(ctx, progress) {
		if err != nil {
			return s.fail(ctx, "verify", "", err)
		}
		if err := out.Send(&wattlev1.VerifyResponse{Finding: wire.FromFinding(f)}); err != nil {
			return err
		}
	}
	return nil
}

// Examine implements the service.
func (s *Service) Examine(ctx context.Context, _ *wattlev1.ExamineRequest) (*wattlev1.ExamineResponse, error) {
	all, err := s.o.Examine(ctx)
	if err != nil {
		return nil, s.fail(ctx, "examine", "", err)
	}
	return &wattlev1.ExamineResponse{Findings: wire.FromFindings(all)}, nil
}

// AcquireLease implements the service.
func (s *Service) AcquireLease(ctx context.Context, m *wattlev1.AcquireLeaseRequest) (*wattlev1.AcquireLeaseResponse, error) {
	const op = "acquire lease"
	holder, err := wire.ToUUID("holder", m.GetHolder())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	ttl, err := wire.ToDuration("ttl", m.GetTtl())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	l, granted, err := s.store.AcquireLease(ctx, m.GetName(), holder, ttl)
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	return &wattlev1.AcquireLeaseResponse{Lease: wire.FromLease(l), Granted: granted}, nil
}

// RenewLease implements the service.
func (s *Service) RenewLease(ctx context.Context, m *wattlev1.RenewLeaseRequest) (*wattlev1.RenewLeaseResponse, error) {
	const op = "renew lease"
	l, err := wire.ToLease(m.GetLease())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	ttl, err := wire.ToDuration("ttl", m.GetTtl())
	if err == nil {
		l, err = s.store.RenewLease(ctx, l, ttl)
	}
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	return &wattlev1.RenewLeaseResponse{Lease: wire.FromLease(l)}, nil
}

// ReleaseLease implements the service.
func (s *Service) ReleaseLease(ctx context.Context, m *wattlev1.ReleaseLeaseRequest) (*wattlev1.ReleaseLeaseResponse, error) {
	l, err := wire.ToLease(m.GetLease())
	if err == nil {
		err = s.store.ReleaseLease(ctx, l)
	}
	if err != nil {
		return nil, s.fail(ctx, "release lease", "", err)
	}
	return &wattlev1.ReleaseLeaseResponse{}, nil
}

// UpdateLeases implements the service.
func (s *Service) UpdateLeases(ctx context.Context, m *wattlev1.UpdateLeasesRequest) (*wattlev1.UpdateLeasesResponse, error) {
	const op = "update leases"
	u, err := wire.ToLeaseUpdate(m)
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	all, err := s.store.UpdateLeases(ctx, u)
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	return &wattlev1.UpdateLeasesResponse{Leases: wire.FromLeases(all)}, nil
}
