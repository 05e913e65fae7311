// What a Store tells of the backends behind it, for those who must know them apart.

package eventstore

// Router is implemented by logs that keep categories in several stores, as [Route].
type Router interface {
	// Backends returns all of them, in an order that stays.
	Backends() []Backend
	// BackendOf returns the one that a category is bound to, ErrNoSuchCategory if none.
	// It asks no backend.
	BackendOf(c Category) (Backend, error)
}

// Backends returns the backends behind the store: those of its Route, else its own
// log under the empty name.
func (s *Store) Backends() []Backend {
	if r, ok := s.log.(Router); ok {
		return r.Backends()
	}
	return []Backend{{Log: s.log}}
}

// Share is the part of some categories that lies in one backend.
type Share struct {
	Backend    Backend
	Categories []Category
}

// Split divides categories among the backends they are bound to: what one feed can
// deliver is one share. Shares are in the order in which their first categories are
// named. It asks no backend. ErrNoSuchCategory if a category is bound to none.
func (s *Store) Split(categories ...Category) ([]Share, error) {
	r, ok := s.log.(Router)
	if !ok {
		return []Share{{Backend{Log: s.log}, categories}}, nil
	}
	var all []Share
next:
	for _, c := range categories {
		b, err := r.BackendOf(c)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Backend.Name == b.Name {
				all[i].Categories = append(all[i].Categories, c)
				continue next
			}
		}
		all = append(all, Share{b, []Category{c}})
	}
	return all, nil
}
