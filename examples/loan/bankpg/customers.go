// Customers: a rule over all applications, kept in the transaction of the append.

package bankpg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// Customers returns a function for bank.Options.Append that sees to it that a customer
// has one open application at most: the table customers has a row for each, made in the
// transaction of the submission and removed in that of the outcome. A second submission
// is refused with loan.RuleOneOpenApplication, also when both are made at once: one waits
// for the other's transaction, in whichever process.
//
// What was appended without it is not in the table. Applications that name no customer
// are not looked at. store's log must be a *pglog.Log in the database of the view's pool.
func (v *View) Customers(store *eventstore.Store) func(context.Context, eventstore.Append) (eventstore.Appended, error) {
	inline := pgcheckpoint.Inline(store, bank.Events(), v.keepCustomer)
	return func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		if !concernsCustomer(a) {
			return store.Append(ctx, a) // together with others: Inline has a transaction for each
		}
		return inline(ctx, a)
	}
}

// concerning are the types of events that keepCustomer does something for.
var concerning = map[string]bool{"loan.submitted": true, "loan.approved": true, "loan.declined": true, "loan.cancelled": true}

func concernsCustomer(a eventstore.Append) bool {
	for _, b := range a.Batches {
		for _, e := range b.Events {
			if concerning[e.Type] {
				return true
			}
		}
	}
	return false
}

func (v *View) customers() string { return pgx.Identifier{v.o.Schema, "customers"}.Sanitize() }

// keepCustomer may be called again for an event whose effect is there.
func (v *View) keepCustomer(ctx context.Context, tx pgx.Tx, e projector.Event[loan.Event]) error {
	switch event := e.Value.(type) {
	case loan.Submitted:
		if event.Customer == "" {
			return nil
		}
		return v.take(ctx, tx, event.Customer, e.Stream.Key())
	case loan.Approved, loan.Declined, loan.Cancelled:
		_, err := tx.Exec(ctx, "DELETE FROM "+v.customers()+" WHERE application = $1", e.Stream.Key())
		return err
	}
	return nil
}

// take makes the row of a customer, or says whose it is.
func (v *View) take(ctx context.Context, tx pgx.Tx, customer, application string) error {
	done, err := tx.Exec(ctx, "INSERT INTO "+v.customers()+" (customer, application) VALUES ($1, $2) ON CONFLICT (customer) DO NOTHING", customer, application)
	if err != nil || done.RowsAffected() == 1 {
		return err
	}
	var open string
	err = tx.QueryRow(ctx, "SELECT application FROM "+v.customers()+" WHERE customer = $1", customer).Scan(&open)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // closed between the two statements
		return v.take(ctx, tx, customer, application)
	case err != nil:
		return err
	case open != application:
		return loan.RefuseSecond(customer, open)
	}
	return nil
}
